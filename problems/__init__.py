"""Problems that this repository registers. Importing this package imports its modules, which
register them.
"""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
