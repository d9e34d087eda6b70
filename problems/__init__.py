"""The problems. Every module in this folder registers its problems when the registry imports the package."""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
