"""How much HBM bandwidth would a faster token need?

For each target of TPOT the bandwidth at which a DGX H100 meets it, all else as it is.  Where the time that no
bandwidth buys is longer than the target there is none, and the reason says what is left.
"""

import pandas as pd

import perfmodel

rows = []
for target in ["9 ms", "8 ms", "7 ms", "6 ms", "5 ms", "4 ms"]:
    found = perfmodel.solve("tpot", "llama-3.1-70b", on="dgx-h100", for_="memory.hbm.bandwidth", target=target)
    solved = found.value == found.value
    rows.append(
        {
            "TPOT": target,
            "bandwidth [TB/s]": f"{found.value / 1e12:.2f}" if solved else "-",
            "times today's": f"{found.value / found.current:.2f}" if solved else "-",
            "why not": found.reason,
        }
    )

table = pd.DataFrame(rows).set_index("TPOT")
