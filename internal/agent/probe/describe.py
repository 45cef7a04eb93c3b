import json, os, site, sys

description = {
    "version": "%d.%d.%d" % sys.version_info[:3],
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base": getattr(sys, "base_prefix", sys.prefix),
    "packages": {},
}
folders = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
if description["prefix"] == description["base"]:
    folders.append(site.getusersitepackages())
description["folders"] = folders
try:
    from importlib import metadata
except ImportError:  # before 3.8
    metadata = None
for name in sys.argv[1:] if metadata else ():
    for found in metadata.distributions(name=name, path=folders):
        description["packages"][name] = str(found.version)
        break
if "torch" in description["packages"]:
    for folder in folders:
        try:
            with open(os.path.join(folder, "torch", "version.py")) as f:
                description["torch_version"] = f.read(4096)
            break
        except (OSError, ValueError):
            pass
print(json.dumps(description))
