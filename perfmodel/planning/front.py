"""The Pareto front."""

from __future__ import annotations

from typing import Any

import numpy as np


def front(costs: Any) -> Any:
    """Return the places of points that no other one equals or beats in every cost; of equal points the first.

    Parameters
    ----------
    costs : ndarray
        A row a point, less being better; a row with NaN or infinity is on no front.

    Returns
    -------
    ndarray
        Places of rows, in order.
    """
    import moocore  # Imported here: most questions have no front.

    there = np.flatnonzero(np.isfinite(costs).all(axis=-1))
    return there[moocore.is_nondominated(costs[there], keep_weakly=False)] if len(there) else there
