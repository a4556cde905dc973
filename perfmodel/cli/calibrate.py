"""``perfmodel calibrate``."""

from __future__ import annotations


def calibrate() -> None:
    """Fit every efficiency on the committed measurements and write hardware_specs/calibration/."""
    from perfmodel.studies.calibrate import calibrate as fit_all

    for path in fit_all():
        print(path)
