# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mlxconfig as the code under test meets it: it keeps state, and prints the tool's own table."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)

WORDS = {
    "LINK_TYPE_P1": {1: "IB", 2: "ETH"},
    "LINK_TYPE_P2": {1: "IB", 2: "ETH"},
    "SRIOV_EN": {0: "False", 1: "True"},
    "ATS_ENABLED": {0: "False", 1: "True"},
    "PCI_WR_ORDERING": {0: "per_mkey", 1: "force_relax"},
}

FACTORY = {
    "LINK_TYPE_P1": 1,
    "SRIOV_EN": 1,
    "NUM_OF_VFS": 16,
    "CNP_DSCP_P1": 0,
    "CNP_802P_PRIO_P1": 7,
    "ROCE_CC_PRIO_MASK_P1": 255,
    "ATS_ENABLED": 0,
    "PCI_WR_ORDERING": 0,
}


class FakeMlxconfig:
    """Cards by PCI address without function, each with parameters as [default, current, next]."""

    def __init__(self, cards, *, name="mlxconfig", factory=FACTORY, columns=3) -> None:
        self.name = name
        self.columns = columns
        self.cards = {
            card: {parameter: [value] * 3 for parameter, value in factory.items()} for card in cards
        }
        self.calls = []
        self.broken = set()

    def reset(self) -> None:
        """What the operator does, and the collection never: the next values become current."""
        for card in self.cards.values():
            for values in card.values():
                values[1] = values[2]

    def value(self, card, parameter):
        return self.cards[card][parameter]

    def __call__(self, argv, *, check=True, stdin=None):
        argv = tuple(argv)
        self.calls.append(argv)
        assert argv[0] == self.name
        result = self._answer(argv)
        if check and result.rc:
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {result.stdout}")
        return result

    def _answer(self, argv):
        pci = argv[argv.index("-d") + 1]
        card = pci.rpartition(".")[0]
        if card not in self.cards or card in self.broken:
            return Result(argv, 3, "", f"-E- Failed to open device: {pci}. Cannot open {pci}\n")
        if argv[-1] == "q":
            assert "-e" in argv
            return Result(argv, 0, self.table(card, pci), "")
        assert "-y" in argv and "set" in argv, argv
        wishes = [word.split("=") for word in argv[argv.index("set") + 1 :]]
        unknown = [name for name, _ in wishes if name not in self.cards[card]]
        if unknown:
            text = f"-E- The Device doesn't support {unknown[0]} parameter.\n"
            return Result(argv, 3, text, "")
        for name, value in wishes:
            self.cards[card][name][2] = int(value)
        done = "Applying... Done!\n-I- Please reboot machine to load new configurations.\n"
        return Result(argv, 0, done, "")

    def table(self, card, pci):
        heading = ["Default", "Current", "Next Boot"][3 - self.columns :]
        lines = [
            "",
            "Device #1:",
            "----------",
            "",
            "Device type:        ConnectX8           ",
            "Name:               900-9X81E-00EX-ST0_Ax",
            "Description:        Configurations of a NIC; 800Gb/s; PCIe 6.0 x16",
            f"Device:             {pci}        ",
            "",
            "Configurations:".ljust(52) + "".join(word.ljust(21) for word in heading),
        ]
        noise = {
            "MEMIC_SIZE_LIMIT": "_256KB(1)",
            "HOST_CHAINING_DESCRIPTORS": "Array[0..7]",
            "PCI_ATOMIC_MODE": "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED(0)",
            "KEEP_ETH_LINK_UP_P9": "N/A",
        }
        for name, word in noise.items():
            lines.append(" RO     " + name.ljust(43) + " ".join([word.ljust(20)] * self.columns))
        for name, values in self.cards[card].items():
            star = "*" if len(set(values)) > 1 else " "
            shown = [self.word(name, value).ljust(20) for value in values[3 - self.columns :]]
            lines.append(f"{star}       {name.ljust(43)} {' '.join(shown)}")
        lines.append(
            "The '*' shows parameters with next value different from default/current value."
        )
        return "\n".join(lines) + "\n"

    def word(self, name, value):
        words = WORDS.get(name)
        return f"{words[value]}({value})" if words else str(value)
