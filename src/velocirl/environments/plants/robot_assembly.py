"""RobotAssembly: insert a peg gently into a hole with a seven-joint arm; the hole's position is slightly off.

The arm has a spherical shoulder, an elbow and a spherical wrist, like most seven-joint arms: joints 1, 3, 5 and 7 turn
about their link, joints 2, 4 and 6 across it. Gear ratios are so high that joints move independently (decentralized
control: Siciliano, Sciavicco, Villani and Oriolo, "Robotics: Modelling, Planning and Control", 2009, chapter 8). The
drives compensate the weight of the arm. Each joint then follows:

    I q'' = torque - b q' + J^T F,  F: contacts, a cable, and the weight of a payload unknown to the drives

The peg touches the wall of the hole at its tip and at the upper edge; both contacts together jam it (Whitney,
"Quasi-static assembly of compliantly supported rigid parts", 1982). Other contacts are the chamfer, which guides the
peg in, the bottom and, next to the hole, the table. Each is a dissipative spring, F = k d (1 + c d') at a depth d (Hunt
and Crossley, "Coefficient of restitution interpreted as damping in vibroimpact", 1975). With r the distance between the
axes of peg and hole and z < 0 the height of the tip:

    wall      d = r - clearance - remaining chamfer at this depth, F against r, and mu F against sliding
    chamfer   the same force upward, if the contact is at the chamfer
    table     d = -z, F upward, if r > clearance + chamfer               bottom    d = -z - depth, F upward

The observation also has each joint's deviation from a plan: a straight path down to the hole's planned position.
Following the plan is safe and slow. Deviations are observed instead of the planned angles, since thousandths of a
radian decide where the peg touches. The reward is the fraction of the depth reached, less costs of force and torque.

Units: s, m, rad, kg, N, N m. Springs are stiff, so everything is computed in double precision.
"""

from itertools import pairwise
from math import cos, sin, sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, float64, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import GREEN, RED, SLATE, STONE, TEAL, WOOD
from velocirl.environments.plants.instruments import clipped, drifted, lagged, noise, share_of
from velocirl.environments.plants.pictures import blended

JOINTS = 7
TIME_STEP = 0.01  # s
GRAVITY = 9.81  # m/s2
BASE, UPPER_ARM, FOREARM, HAND = 0.34, 0.40, 0.40, 0.25  # m; the hand includes the peg, from the wrist to the peg's tip
INERTIA = (2.0, 2.0, 1.2, 1.2, 0.6, 0.4, 0.2)  # kg m2, of each joint with its drive
FRICTION = (10.0, 10.0, 6.0, 6.0, 3.0, 2.0, 1.0)  # N m s
LARGEST_TORQUE = (120.0, 120.0, 80.0, 80.0, 40.0, 30.0, 15.0)  # N m
LARGEST_ANGLE, LARGEST_VELOCITY = 2.9, 6.0  # rad, rad/s: limits of joints and drives
HOLE = (0.55, 0.0)  # m, planned position; the table is at height 0
START_HEIGHT, GOAL_DEPTH, HOLE_DEPTH = 0.06, 0.03, 0.032  # m
SLIDING = 0.01  # m/s, at which sliding friction is fully developed
FORCE_ERROR = 0.5  # N
PEG_REACH = 0.1  # m, distance from the goal within which approaching is rewarded

SIGNALS = {  # name: unit, range
    **{f"angle_{joint}": ("rad", -3.0, 3.0) for joint in range(1, JOINTS + 1)},
    **{f"velocity_{joint}": ("rad/s", -6.0, 6.0) for joint in range(1, JOINTS + 1)},
    **{f"deviation_{joint}": ("rad", -6.0, 6.0) for joint in range(1, JOINTS + 1)},
    **{f"force_{axis}": ("N", -1000.0, 1000.0) for axis in "xyz"},
}
LEAST, MOST = (np.array([signal[k] for signal in SIGNALS.values()], np.float32) for k in (1, 2))


@record
class State:
    angle: float64[7]  # rad
    velocity: float64[7]  # rad/s
    torque: float32[7]  # N m, actual torque of the drives
    hole: float64[2]  # m, actual position
    cable: float32[2]  # N, lateral force on the hand
    force: float32[3]  # N of all contacts, on the peg
    strength: float32  # N, magnitude of the contact forces
    sensor_errors: float32[3]  # of the force, in standard deviations
    speed: float32  # m/s of the tip
    depth: float32  # m, of the peg in the hole
    time: float32  # s


@record
class Params:
    misplacement: float32 = between(0.0, 0.01, default=0.0008)  # m, maximum offset of the hole in each direction
    clearance: float32 = between(1e-5, 0.01, default=0.0005)  # m, between peg and hole
    chamfer: float32 = between(0.0, 0.01, default=0.003)  # m, width and depth
    stiffness: float32 = between(1e3, 1e4, default=5e3)  # N/m of contacts, including the wrist's compliance
    dissipation: float32 = between(0.0, 30.0, default=20.0)  # s/m, of contacts
    sliding_friction: float32 = between(0.0, 0.4, default=0.15)
    payload: float32 = between(0.0, 5.0, default=0.1)  # kg, unknown to the drives
    cable_deviation: float32 = between(0.0, 20.0, default=0.5)  # N
    cable_time: float32 = between(0.0, 100.0, default=0.5)  # s
    joint_friction: float32 = between(0.5, 5.0, default=1.0)  # relative to a new arm
    drive_lag: float32 = between(0.0, 0.1, default=0.005)  # s, of torques
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: 0.5 N in each component of the force
    start_error: float32 = between(0.0, 0.1, default=0.01)  # rad, maximum of each joint at reset
    plan_speed: float32 = between(0.005, 0.5, default=0.04)  # m/s
    force_cost: float32 = 0.004  # 1/N
    torque_cost: float32 = 0.05  # with all drives at maximum torque


def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(a, direction, distance):
    """Return the point at a distance from a, in a direction."""
    return a[0] + distance * direction[0], a[1] + distance * direction[1], a[2] + distance * direction[2]


def turned(a, b, angle):
    """Rotate two perpendicular vectors in their plane, the first toward the second."""
    c, s = cos(angle), sin(angle)
    return (
        (c * a[0] + s * b[0], c * a[1] + s * b[1], c * a[2] + s * b[2]),
        (c * b[0] - s * a[0], c * b[1] - s * a[1], c * b[2] - s * a[2]),
    )


def pose(q):
    """Return the axes of the seven joints, and elbow, wrist and tip positions; the last axis is the peg's."""
    x, y, z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    first = z
    x, y = turned(x, y, q[0])
    second = y
    z, x = turned(z, x, q[1])
    third = z
    elbow = along((0.0, 0.0, BASE), z, UPPER_ARM)
    x, y = turned(x, y, q[2])
    fourth = y
    z, x = turned(z, x, q[3])
    fifth = z
    wrist = along(elbow, z, FOREARM)
    x, y = turned(x, y, q[4])
    sixth = y
    z, x = turned(z, x, q[5])
    return (first, second, third, fourth, fifth, sixth, z), elbow, wrist, along(wrist, z, HAND)


def contacts(state, params, tip, axis, velocity):
    """Return the forces on the peg at its tip and at the chamfer's lower edge, and the position of that edge."""
    below = max(-tip[2], 0.0)
    x, y = tip[0] - state.hole[0], tip[1] - state.hole[1]
    r = sqrt(x * x + y * y + 1e-12)
    over_hole = r <= params.clearance + params.chamfer
    chamfer = max(params.chamfer - below, 0.0)  # remaining chamfer at this depth
    depth = r - params.clearance - chamfer if over_hole and below > 0.0 else 0.0
    wall = spring(params, depth, (velocity[0] * x + velocity[1] * y) / r)
    up = spring(params, below - HOLE_DEPTH if over_hole else below, -velocity[2]) + (wall if chamfer > 0.0 else 0.0)

    edge = along(tip, axis, (-params.chamfer - tip[2]) / min(axis[2], -0.2))
    edge_x, edge_y = edge[0] - state.hole[0], edge[1] - state.hole[1]
    edge_r = sqrt(edge_x * edge_x + edge_y * edge_y + 1e-12)
    depth = edge_r - params.clearance if over_hole and below > params.chamfer else 0.0
    edge_wall = spring(params, depth, (velocity[0] * edge_x + velocity[1] * edge_y) / edge_r)

    up += params.sliding_friction * (wall + edge_wall) * clipped(-velocity[2] / SLIDING, -1.0, 1.0)
    return (-wall * x / r, -wall * y / r, up), (-edge_wall * edge_x / edge_r, -edge_wall * edge_y / edge_r, 0.0), edge


def spring(params, depth, velocity):
    """Return the contact force at a penetration depth and an approach velocity."""
    return params.stiffness * max(depth, 0.0) * max(1.0 + params.dissipation * velocity, 0.0)


def tip_velocity(v, axes, elbow, wrist, tip):
    """Return the tip's velocity from the joint velocities."""
    shoulder = (0.0, 0.0, BASE)
    at_shoulder = along(along(along((0.0, 0.0, 0.0), axes[0], v[0]), axes[1], v[1]), axes[2], v[2])
    at_wrist = along(along((0.0, 0.0, 0.0), axes[4], v[4]), axes[5], v[5])
    moved = along(cross(at_shoulder, along(tip, shoulder, -1.0)), cross(axes[3], along(tip, elbow, -1.0)), v[3])
    return along(moved, cross(at_wrist, along(tip, wrist, -1.0)), 1.0)


def acceleration(state, params, q, v):
    """Return the accelerations of all joints from their angles and velocities."""
    axes, elbow, wrist, tip = pose(q)
    velocity = tip_velocity(v, axes, elbow, wrist, tip)
    at_tip, at_edge, edge = contacts(state, params, tip, axes[6], velocity)
    at_tip = along(at_tip, (state.cable[0], state.cable[1], -params.payload * GRAVITY), 1.0)

    # Transposed Jacobian: torques of all forces about each axis of wrist, elbow and shoulder.
    force = along(at_tip, at_edge, 1.0)
    by_tip, by_edge = cross(along(tip, wrist, -1.0), at_tip), cross(along(edge, wrist, -1.0), at_edge)
    at_wrist = along(by_tip, by_edge, 1.0)
    at_elbow = along(at_wrist, cross(along(wrist, elbow, -1.0), force), 1.0)
    at_shoulder = along(at_wrist, cross(along(wrist, (0.0, 0.0, BASE), -1.0), force), 1.0)
    friction = params.joint_friction
    return (
        (state.torque[0] - friction * FRICTION[0] * v[0] + dot(axes[0], at_shoulder)) / INERTIA[0],
        (state.torque[1] - friction * FRICTION[1] * v[1] + dot(axes[1], at_shoulder)) / INERTIA[1],
        (state.torque[2] - friction * FRICTION[2] * v[2] + dot(axes[2], at_shoulder)) / INERTIA[2],
        (state.torque[3] - friction * FRICTION[3] * v[3] + dot(axes[3], at_elbow)) / INERTIA[3],
        (state.torque[4] - friction * FRICTION[4] * v[4] + dot(axes[4], at_wrist)) / INERTIA[4],
        (state.torque[5] - friction * FRICTION[5] * v[5] + dot(axes[5], at_wrist)) / INERTIA[5],
        (state.torque[6] - friction * FRICTION[6] * v[6] + dot(axes[6], at_wrist)) / INERTIA[6],
    )


def ahead(point, slope, time):
    """Return the values of seven joints after `time` along a slope."""
    return (
        point[0] + time * slope[0],
        point[1] + time * slope[1],
        point[2] + time * slope[2],
        point[3] + time * slope[3],
        point[4] + time * slope[4],
        point[5] + time * slope[5],
        point[6] + time * slope[6],
    )


def all_of(joints):
    return joints[0], joints[1], joints[2], joints[3], joints[4], joints[5], joints[6]


def step(state, params, action, rng):
    cable, drive = share_of(TIME_STEP, params.cable_time), share_of(TIME_STEP, params.drive_lag)
    for k in range(2):
        state.cable[k] = drifted(state.cable[k], 0.0, params.cable_deviation, cable, rng)
    effort = 0.0
    for joint in range(JOINTS):
        wanted = clipped(action[joint], -LARGEST_TORQUE[joint], LARGEST_TORQUE[joint])
        state.torque[joint] = lagged(state.torque[joint], wanted, drive)
        effort += (state.torque[joint] / LARGEST_TORQUE[joint]) ** 2 / JOINTS

    # Fourth-order Runge-Kutta with constant torques and cable force.
    q, v = all_of(state.angle), all_of(state.velocity)
    a1 = acceleration(state, params, q, v)
    v2 = ahead(v, a1, TIME_STEP / 2.0)
    a2 = acceleration(state, params, ahead(q, v, TIME_STEP / 2.0), v2)
    v3 = ahead(v, a2, TIME_STEP / 2.0)
    a3 = acceleration(state, params, ahead(q, v2, TIME_STEP / 2.0), v3)
    v4 = ahead(v, a3, TIME_STEP)
    a4 = acceleration(state, params, ahead(q, v3, TIME_STEP), v4)
    q = ahead(ahead(ahead(ahead(q, v, TIME_STEP / 6.0), v2, TIME_STEP / 3.0), v3, TIME_STEP / 3.0), v4, TIME_STEP / 6.0)
    v = ahead(
        ahead(ahead(ahead(v, a1, TIME_STEP / 6.0), a2, TIME_STEP / 3.0), a3, TIME_STEP / 3.0), a4, TIME_STEP / 6.0
    )
    for joint in range(JOINTS):
        angle = clipped(q[joint], -LARGEST_ANGLE, LARGEST_ANGLE)
        moves = q[joint] == angle  # a joint stops at its limit
        state.angle[joint] = angle
        state.velocity[joint] = clipped(v[joint], -LARGEST_VELOCITY, LARGEST_VELOCITY) if moves else 0.0
    state.time += TIME_STEP
    tip = look(state, params)
    for k in range(3):
        state.sensor_errors[k] = noise(rng)

    off = (tip[0] - state.hole[0], tip[1] - state.hole[1], tip[2] + GOAL_DEPTH)
    near = max(1.0 - sqrt(dot(off, off)) / PEG_REACH, 0.0)
    reached = min(state.depth / GOAL_DEPTH, 1.0)
    return 0.3 * near + 0.7 * reached - params.force_cost * state.strength - params.torque_cost * effort, False


def look(state, params):
    """Update force, speed and depth from the state; returns the tip's position."""
    axes, elbow, wrist, tip = pose(all_of(state.angle))
    velocity = tip_velocity(all_of(state.velocity), axes, elbow, wrist, tip)
    at_tip, at_edge, _ = contacts(state, params, tip, axes[6], velocity)
    force = along(at_tip, at_edge, 1.0)
    state.force[0], state.force[1], state.force[2] = force
    # Forces at the tip and at the edge may cancel and still cause damage, so magnitudes add up.
    state.strength = sqrt(dot(at_tip, at_tip)) + sqrt(dot(at_edge, at_edge))
    state.speed = sqrt(dot(velocity, velocity))
    x, y = tip[0] - state.hole[0], tip[1] - state.hole[1]
    in_hole = x * x + y * y <= (params.clearance + params.chamfer) ** 2
    state.depth = max(-tip[2], 0.0) if in_hole else 0.0
    return tip


def fastest_joint(state, params):
    fastest = 0.0
    for joint in range(JOINTS):
        fastest = max(fastest, abs(state.velocity[joint]))
    return fastest


def angles_at(height, q):
    """Return the joint angles, nearest to `q`, that point the peg down at `height` above the planned hole (Newton)."""
    q = np.array(q, float)
    for _ in range(8):
        axes, elbow, wrist, tip = (np.array(part) for part in pose(q))
        origins = np.array([[0.0, 0.0, BASE]] * 3 + [elbow] + [wrist] * 3)
        jacobian = np.concatenate([np.cross(axes, tip - origins).T, np.cross(axes, axes[6])[:, :2].T])
        q -= np.linalg.pinv(jacobian) @ np.array([*(tip - [*HOLE, height]), *axes[6, :2]])
    return q


def planned_path():
    """Return the planned angles as quadratics of the progress from 0 to 1: (3, joints), for (1, way, way^2)."""
    ways, q = (0.0, 0.5, 1.0), [0.0, 0.4, 0.0, 1.6, 0.0, 1.1, 0.0]
    points = np.array([q := angles_at(START_HEIGHT - way * (START_HEIGHT + GOAL_DEPTH), q) for way in ways])
    return np.linalg.solve(np.vander(ways, increasing=True), points)


PATH = planned_path()


def planned(joint, way):
    return PATH[0, joint] + way * (PATH[1, joint] + way * PATH[2, joint])


def reset(state, params, rng):
    for joint in range(JOINTS):
        state.angle[joint] = PATH[0, joint] + random.uniform(rng, -params.start_error, params.start_error)
        state.velocity[joint] = 0.0
        state.torque[joint] = 0.0
    for k in range(2):
        state.hole[k] = HOLE[k] + random.uniform(rng, -params.misplacement, params.misplacement)
        state.cable[k] = 0.0
    for k in range(3):
        state.sensor_errors[k] = 0.0
    state.time = 0.0
    look(state, params)


def observe(state, params, observation):
    way = min(state.time * params.plan_speed / (START_HEIGHT + GOAL_DEPTH), 1.0)
    for joint in range(JOINTS):
        observation[joint] = state.angle[joint]
        observation[7 + joint] = state.velocity[joint]
        observation[14 + joint] = state.angle[joint] - planned(joint, way)
    for k in range(3):
        measured = state.force[k] + FORCE_ERROR * params.sensor_noise * state.sensor_errors[k]
        observation[21 + k] = clipped(measured, -1000.0, 1000.0)


def draw(state, params, canvas):
    canvas.view(-0.3, 0.9, -0.1, 1.0, 480, 440)
    hole = state.hole[0]
    canvas.rectangle(-0.3, -0.1, hole - 0.02, 0.0, WOOD)
    canvas.rectangle(hole + 0.02, -0.1, 0.9, 0.0, WOOD)
    canvas.rectangle(hole - 0.02, -0.1, hole + 0.02, -HOLE_DEPTH, WOOD)
    axes, elbow, wrist, tip = pose(all_of(state.angle))
    flange = along(wrist, axes[6], 0.5 * HAND)
    points = ((0.0, 0.0, 0.0), (0.0, 0.0, BASE), elbow, wrist, flange)
    for k, (start, end) in enumerate(pairwise(points)):
        canvas.line(start[0], start[2], end[0], end[2], 0.1 - 0.015 * k, STONE)
    canvas.line(flange[0], flange[2], tip[0], tip[2], 0.03, blended(TEAL, RED, state.strength / 25.0))
    for point in points[1:4]:
        canvas.disc(point[0], point[2], 0.035, SLATE)
    canvas.disc(0.3, 0.9, 0.01 + 0.05 * state.depth / GOAL_DEPTH, GREEN)


# All joints follow the plan with equal dynamics, so that they lag behind it in time without leaving its path.
CONTROLLER = PID(
    *(
        Loop(
            f"deviation_{joint + 1}",
            f"torque_{joint + 1}",
            0.0,
            gain=225.0 * INERTIA[joint],
            integral_time=1.0,
            derivative_time=0.11,
        )
        for joint in range(JOINTS)
    ),
    time_step=TIME_STEP,
)

environment = Environment(
    "RobotAssembly-v0",
    state=State,
    params=Params,
    observation=Box(LEAST, MOST),
    action=Box(-np.array(LARGEST_TORQUE, np.float32), np.array(LARGEST_TORQUE, np.float32)),
    max_steps=400,
    time_step=TIME_STEP,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: signal[0] for name, signal in SIGNALS.items()},
    actuators={f"torque_{joint}": "N m" for joint in range(1, JOINTS + 1)},
    constraints=(
        Constraint("contact_force", value="strength", high=60.0, unit="N", penalty=10.0, critical=True),
        Constraint("gentle_force", value="strength", high=25.0, unit="N", penalty=0.1),
        Constraint("tip_speed", value="speed", high=0.25, unit="m/s", penalty=0.1),
        Constraint("joint_speed", value=fastest_joint, high=1.0, unit="rad/s", penalty=0.1),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {"misplacement": 0.0012, "cable_deviation": 1.0, "sensor_noise": 1.0, "payload": 0.2},
        "degraded": {"joint_friction": 1.6, "drive_lag": 0.02, "clearance": 0.0003, "sliding_friction": 0.3},
    },
    controller=CONTROLLER,
    presets={
        "ppo": {  # long rollouts: contact comes late in an episode, and the peg is in for the rest of it
            "total_steps": 2_000_000,
            "horizon": 256,
            "minibatch_size": 512,
            "epochs": 5,
            "learning_rate": 3e-4,
            "gamma": 0.995,
            "gae_lambda": 0.97,
            "normalise_observations": True,
            "normalise_rewards": True,
            "log_deviation": -2.0,
            "entropy_coefficient": 0.0,
        },
    },
)
