"""What the trace becomes: formulas, JavaScript, a workbook, a what-if page."""
