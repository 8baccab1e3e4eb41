"""startup: a folder for PYTHONPATH, with nothing in it but `sitecustomize`."""
