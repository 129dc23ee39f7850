# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The operating system as an MPI node needs it, one subject per file.

`core/part.py` says what a subject is; `core/engine.py` plans, applies and reads back a list.
"""
