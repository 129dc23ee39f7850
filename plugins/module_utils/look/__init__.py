# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The look: one program on a node that runs the module of each layer in check mode, with the
options that the layer recorded (core/asked.py), and answers for all layers in one execution."""
