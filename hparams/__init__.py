"""The built-in hparams sets. Importing this package imports all its modules, and each of them
registers its sets.
"""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
