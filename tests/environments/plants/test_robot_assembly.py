"""RobotAssembly: kinematics, balances, contacts, and a trajectory against scipy with equations written down again."""

import numpy as np
import pytest
from one_copy import OneCopy
from scipy.integrate import solve_ivp

from velocirl.environments.plants import robot_assembly
from velocirl.environments.plants.robot_assembly import environment

QUIET = {"cable_deviation": 0.0, "payload": 0.0, "start_error": 0.0, "misplacement": 0.0}
INERTIA = np.array([2.0, 2.0, 1.2, 1.2, 0.6, 0.4, 0.2])
FRICTION = np.array([10.0, 10.0, 6.0, 6.0, 3.0, 2.0, 1.0])
HOLE = np.array([0.55, 0.0])


def arm(**params):
    return OneCopy(environment, seed=1, **{**QUIET, **params})


def rotation(axis, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]] if axis == "z" else [[c, 0, s], [0, 1, 0], [-s, 0, c]])


def frames(q):
    """The axis of each joint, the direction of the peg, and the points shoulder, elbow, wrist, tip."""
    turn, axes, links = np.eye(3), [], []
    for axis, angle in zip("zyzyzyz", q, strict=True):
        axes.append(turn[:, "xyz".index(axis)])
        turn = turn @ rotation(axis, angle)
        links.append(turn[:, 2])
    shoulder = np.array([0.0, 0.0, 0.34])
    elbow = shoulder + 0.4 * links[1]
    wrist = elbow + 0.4 * links[3]
    return np.array(axes), links[6], (shoulder, elbow, wrist, wrist + 0.25 * links[6])


def tip_of(q):
    return frames(q)[2][3]


def jacobian(q, point):
    """How a point of the hand moves with each joint: its axis times the way from the joint."""
    axes, _, (shoulder, elbow, wrist, _) = frames(q)
    return np.cross(axes, point - np.array([shoulder, shoulder, shoulder, elbow, elbow, wrist, wrist])).T


def forces(q, v, hole, p):
    """Forces of the contacts and the points at which they act."""
    _, axis, (_, _, _, tip) = frames(q)
    x, y, z = tip
    velocity = jacobian(q, tip) @ v

    def pushed(depth, speed):
        return p.stiffness * depth * max(1.0 + p.dissipation * speed, 0.0) if depth > 0.0 else 0.0

    out = np.array([x, y]) - hole
    r = np.hypot(*out)
    if z >= 0.0:
        return []
    if r > p.clearance + p.chamfer:
        return [(np.array([0.0, 0.0, pushed(-z, -velocity[2])]), tip)]
    chamfer = max(p.chamfer + z, 0.0)
    wall = pushed(r - p.clearance - chamfer, velocity[:2] @ out / r)
    edge, edge_wall, edge_out = tip, 0.0, np.zeros(2)
    if -z > p.chamfer:
        edge = tip + axis * (-p.chamfer - z) / axis[2]
        edge_out = edge[:2] - hole
        edge_wall = pushed(np.hypot(*edge_out) - p.clearance, velocity[:2] @ edge_out / np.hypot(*edge_out))
    up = (wall if chamfer > 0.0 else 0.0) + pushed(-z - 0.032, -velocity[2])
    up += p.sliding_friction * (wall + edge_wall) * np.clip(-velocity[2] / 0.01, -1.0, 1.0)
    sideways = -edge_wall * edge_out / max(np.hypot(*edge_out), 1e-9)
    return [(np.array([*(-wall * out / max(r, 1e-9)), up]), tip), (np.array([*sideways, 0.0]), edge)]


def test_the_pose_is_that_of_rotations_one_after_the_other():
    for q in np.random.default_rng(1).uniform(-2.5, 2.5, (20, 7)):
        axes, elbow, wrist, tip = robot_assembly.pose(q)
        their_axes, direction, (_, their_elbow, their_wrist, their_tip) = frames(q)
        np.testing.assert_allclose([elbow, wrist, tip], [their_elbow, their_wrist, their_tip], atol=1e-12)
        np.testing.assert_allclose(axes, their_axes, atol=1e-12)
        np.testing.assert_allclose(axes[6], direction, atol=1e-12)
        v = np.sin(7.0 * q)
        ahead, behind = tip_of(q + 1e-6 * v), tip_of(q - 1e-6 * v)
        moved = robot_assembly.tip_velocity(v, axes, elbow, wrist, tip)
        np.testing.assert_allclose(moved, (ahead - behind) / 2e-6, atol=1e-7)


def test_the_plan_goes_straight_down_to_the_hole():
    for way in np.linspace(0.0, 1.0, 21):
        q = [robot_assembly.planned(joint, way) for joint in range(7)]
        np.testing.assert_allclose(tip_of(q), [0.55, 0.0, 0.06 - 0.09 * way], atol=5e-5)
        np.testing.assert_allclose(frames(q)[1], [0.0, 0.0, -1.0], atol=1e-4)


def test_an_arm_that_nobody_moves_stays_and_one_that_slides_is_slowed_by_friction():
    still = arm()
    before = still.state.angle.copy()
    for _ in range(50):
        still.step(*np.zeros(7))
    np.testing.assert_allclose(still.state.angle, before, atol=1e-12)

    velocity = np.array([0.3, -0.2, 0.2, -0.3, 0.1, 0.2, 0.3])
    moving = arm().write(velocity=velocity)
    for _ in range(20):
        moving.step(*np.zeros(7))
    np.testing.assert_allclose(moving.state.velocity, velocity * np.exp(-0.2 * FRICTION / INERTIA), rtol=1e-6)


@pytest.mark.parametrize(
    ("place", "height", "expected"),
    [
        ((0.0, 0.0), 0.001, (0.0, 0.0, 0.0)),  # above
        ((0.0, 0.0), -0.020, (0.0, 0.0, 0.0)),  # in the middle of the hole
        ((0.0008, 0.0), -0.020, (-1.5 - 1.5, 0.0, 0.0)),  # 0.3 mm into the wall, at the tip and at the edge
        ((0.0, -0.0030), -0.001, (0.0, 2.5, 2.5)),  # 0.5 mm into the chamfer, which is 2 mm wide there
        ((0.0100, 0.0), -0.001, (0.0, 0.0, 5.0)),  # on the table
        ((0.0, 0.0), -0.033, (0.0, 0.0, 5.0)),  # on the bottom
    ],
    ids=["above", "middle", "wall", "chamfer", "table", "bottom"],
)
def test_contacts_push_as_springs(place, height, expected):
    copy = arm(sliding_friction=0.0)
    q = robot_assembly.angles_at(height, robot_assembly.PATH[0])
    copy.write(angle=q, hole=HOLE - np.array(place))
    robot_assembly.look(copy.state, copy.params)
    np.testing.assert_allclose(copy.state.force, expected, atol=2e-3)


def test_a_weight_at_the_tip_turns_the_joints_by_its_levers():
    copy = arm(payload=2.0)
    q = np.array([0.3, 0.5, -0.2, 1.2, 0.4, 0.9, 0.1])
    accelerations = robot_assembly.acceleration(copy.write(angle=q).state, copy.params, q, np.zeros(7))
    torque = jacobian(q, tip_of(q)).T @ np.array([0.0, 0.0, -2.0 * 9.81])
    np.testing.assert_allclose(accelerations * INERTIA, torque, atol=1e-5)


def test_a_trajectory_is_that_of_scipy():
    """Into the chamfer and down along the wall, angles within 1e-4 rad and forces within 0.4 N for 0.4 s."""
    copy = arm(payload=0.3, drive_lag=0.0)
    hole = HOLE + np.array([0.0011, -0.0007])
    copy.write(angle=robot_assembly.angles_at(0.002, robot_assembly.PATH[0]), hole=hole)
    p, point = copy.params, np.concatenate([copy.state.angle, np.zeros(7)])
    goal = np.array([robot_assembly.planned(joint, 0.85) for joint in range(7)])
    strongest = 0.0

    def slope(_, point, torque):
        q, v = point[:7], point[7:]
        total = torque - FRICTION * v + jacobian(q, tip_of(q)).T @ np.array([0.0, 0.0, -0.3 * 9.81])
        for force, place in forces(q, v, hole, p):
            total = total + jacobian(q, place).T @ force
        return np.concatenate([v, total / INERTIA])

    for _ in range(40):
        torque = (INERTIA * (225.0 * (goal - copy.state.angle) - 25.0 * copy.state.velocity)).astype(np.float32)
        copy.step(*torque)
        point = solve_ivp(slope, (0.0, 0.01), point, args=(torque,), rtol=1e-6, atol=1e-8).y[:, -1]
        np.testing.assert_allclose(copy.state.angle, point[:7], atol=1e-4)
        total = sum((force for force, _ in forces(point[:7], point[7:], hole, p)), np.zeros(3))
        np.testing.assert_allclose(copy.state.force[:2], total[:2], atol=0.4)
        strongest = max(strongest, np.hypot(*total[:2]))
    assert strongest > 5.0
    assert copy.state.depth > 0.005
