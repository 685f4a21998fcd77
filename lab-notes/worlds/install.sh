#!/bin/sh
# Makes an environment of its own for the worlds:  sh lab-notes/worlds/install.sh FOLDER
# simglucose asks for versions of gym and gymnasium that exclude sbac's, and needs none of them: it is installed without
# its dependencies, and what it imports beside it. setuptools 81 and later lack the pkg_resources that it imports.
set -e
python3 -m venv "$1"
"$1/bin/pip" install . "setuptools<81" "gym==0.26.2" pandas
"$1/bin/pip" install --no-deps "simglucose==0.2.11" "industrial-benchmark-python==2.0"
