"""Tables, explanations, workbooks and pages; all formulas come from the trace."""
