"""Importing this module imports the annexes that register something with the core: models, engines
and formats of data.
"""

import t2t_repro.ctranslate2
import t2t_repro.opennmt_tf
import t2t_repro.rivals
import t2t_repro.tensor2tensor  # noqa: F401
