"""Ways of holding the fingers that actions share."""

from __future__ import annotations

from .pose import Grip

RELAXED = Grip((5, 12, 10, 15), (20, 28), (24, 32), (28, 36), (30, 38), spread=4)
FLAT = Grip((-5, 5, 0, 5), (2, 4), (0, 4), (2, 4), (4, 6), spread=3)
OPEN = Grip((-15, 15, -5, 0), (-5, 4), (-5, 4), (-4, 5), (-2, 6), spread=15)
FIST = Grip((12, 10, 50, 60), (80, 100), (82, 102), (84, 100), (84, 98))
WRAP = Grip((8, 45, 35, 40), (45, 55), (48, 58), (52, 60), (54, 60), spread=3)  # a bottle
CLAW = Grip((-5, 35, 35, 40), (28, 45), (28, 45), (28, 45), (28, 45), spread=14)  # a lid
HOOK = Grip((0, 10, 40, 60), (40, 95), (42, 98), (44, 98), (46, 95))  # a handle
PINCH = Grip((25, 20, 25, 35), (50, 45), (35, 40), (30, 38), (26, 36), spread=4)
TRIPOD = Grip((30, 20, 30, 35), (48, 48), (52, 52), (62, 70), (66, 74))  # a pen, a spoon
LATERAL = Grip((2, 5, 38, 45), (62, 70), (70, 85), (74, 88), (76, 88))  # a key
POINT = Grip((18, 2, 48, 52), (5, 8), (76, 95), (80, 98), (80, 96))
SPHERE = Grip((-5, 42, 35, 30), (30, 30), (32, 32), (32, 34), (30, 36), spread=12)  # a fruit
PLATE = Grip((38, 5, 10, 5), (55, 8), (56, 8), (57, 10), (58, 12), spread=2)  # thin and wide
CRADLE = Grip((0, 10, 25, 25), (30, 40), (34, 44), (38, 48), (42, 50), spread=2)  # a phone
