"""Figures and tables of Dataflow Is All You Need (MLSys 2026), each beside what the models make of it.

The machine is the one that every prediction uses: the fits are those of :mod:`perfmodel.evidence.dataflow_fit`, and
everything not named there is predicted.  A naive predictor stands beside ours wherever one is worth the name.
"""
