"""Acting in training: from the output of a network to an action of each copy."""

from velocirl.program.rows.recording import FAULT_IN_POLICY, STEP, not_finite, tell


def check_output(i, r, t, outputs, log, clock):
    """The output of copy i, by which it will act, stands in row r; a network that gives no numbers is at fault."""
    if not_finite(outputs[r]):
        tell(log, FAULT_IN_POLICY, i, t + clock[STEP])


def keep_mask(row, mask):
    """What was legal is kept with the step, for the update."""
    for k in range(len(row.mask)):
        row.mask[k] = mask[k]


def random_action(head, row, mask, rng):
    """Any legal action is as probable as any other."""
    head.draw(mask, rng, row.action)
