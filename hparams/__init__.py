"""The built-in hparams sets. Importing this package imports all its modules, and each of them
registers its sets.

It also imports the packages that register the other models for which there are sets.
"""

import importlib
import pkgutil

import t2t_repro.opennmt_tf
import t2t_repro.rivals  # noqa: F401

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
