"""Acting in training: from the network's output to an action of each environment."""

from velocirl.program.rows.recording import FAULT_IN_POLICY, STEP, not_finite, tell


def check_output(i, r, t, outputs, log, clock):
    """Record a fault if row r of the outputs, by which environment i acts, has a non-finite value."""
    if not_finite(outputs[r]):
        tell(log, FAULT_IN_POLICY, i, t + clock[STEP])


def keep_mask(row, mask):
    """Store the action mask with the step, for the update."""
    for k in range(len(row.mask)):
        row.mask[k] = mask[k]


def random_action(head, row, mask, rng):
    """Draw a legal action uniformly at random."""
    head.draw(mask, rng, row.action)
