# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draft a model from machines that rdma_facts has read, or compare them with a model."""
