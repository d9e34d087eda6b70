"""tensor2tensor's models, data directories and names.

Importing this package registers the format of its data.
"""

import t2t_repro.tensor2tensor.data  # noqa: F401
