#!/usr/bin/env python3
"""Makes schedule-vectors.json: the schedule of PROTOCOL.md section 11, by Python's standard library and no
code of this project. `python3 schedule_vectors.py > schedule-vectors.json`."""

import hashlib
import hmac
import ipaddress
import json
import random
from fractions import Fraction

MIN_GUESS = 12_500
F = Fraction(225, 100) * Fraction(105, 100) / Fraction(80, 100)


def rounded(fraction):
    """To the nearest integer, halves up."""
    return int(fraction + Fraction(1, 2))


def demand(guess):
    return rounded(F * guess)


def bound(allocated):
    """What z must be below to be conclusive (section 9)."""
    return rounded(allocated * Fraction(80, 100) / Fraction(225, 100))


def draw(seed, relay, coordinator, counter, count):
    digest = hashlib.sha256(seed + relay + coordinator + counter.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big") * count >> 64


def parts(relays, of_ipv4, of_ipv6):
    """The networks of relays, of so many bits."""
    addresses = {ipaddress.ip_address(address) for relay in relays for address in relay["addresses"]}
    return {ipaddress.ip_network((address, of_ipv4 if address.version == 4 else of_ipv6), strict=False)
            for address in addresses}


def components(relays, joined):
    """Relays in sets that hang together, in the order of the list."""
    sets = []
    for relay in relays:
        near = [one for one in sets if any(joined(relay, other) for other in one)]
        sets = [one for one in sets if one not in near] + [sum(near, []) + [relay]]
    order = {relay["fingerprint"]: place for place, relay in enumerate(relays)}
    place = lambda relay: order[relay["fingerprint"]]
    return sorted((sorted(one, key=place) for one in sets), key=lambda one: place(one[0]))


def same_host(one, other):
    return bool(set(one["addresses"]) & set(other["addresses"]))


def belong(one, other):
    both = other["fingerprint"] in one["family"] and one["fingerprint"] in other["family"]
    return both or same_host(one, other) or bool(set(one["family_ids"]) & set(other["family_ids"]))


class Period:
    """One period, as all coordinators see it; measuring again is told of all of them."""

    def __init__(self, relays, teams, slots, seed, new_guess):
        self.teams = sorted(teams, key=lambda team: team["coordinator"])
        self.capacities = [sum(team["measurers"]) for team in self.teams]
        self.most = max(self.capacities)
        self.slots, self.seed, self.new_guess = slots, seed, new_guess
        self.left = [[capacity] * slots for capacity in self.capacities]
        self.groups = []  # with members, gives, places, beside
        self.again = []  # with team, group, slot, tasks
        self.too_fast, self.capped = [], []
        self.everybody = list(relays)
        made = [group for one in components(relays, belong) for group in self.divided(one)]
        new = [group for group in made if all(r["estimate"] is None for r in group["members"])]
        placed = [group for group in made if group not in new]
        is_mixed = lambda group: any(r["estimate"] is None for r in group["members"])
        placed.sort(key=lambda g: (is_mixed(g), -sum(g["gives"]), self.name(g)))
        for group in placed:
            self.draw_places(group)
        self.drawn = len(self.groups)
        for group in new:
            self.enter(group, [None] * len(self.teams), group)
        self.take_turns([group["beside"] for group in self.groups[self.drawn:]], 0)

    def name(self, group):
        return min(relay["fingerprint"] for relay in group["members"])

    def guess(self, relay):
        guess = self.new_guess if relay["estimate"] is None else relay["estimate"]
        return max(guess, MIN_GUESS)

    def need(self, relay):
        return demand(self.guess(relay))

    def divided(self, relays):
        """Groups of what belongs together."""
        fast = [relay for relay in relays if self.need(relay) > self.most]
        self.too_fast += [(relay["fingerprint"], self.need(relay)) for relay in fast]
        relays = [relay for relay in relays if relay not in fast]
        total = lambda some: sum(map(self.need, some))
        parts = [relays] if relays else []
        if total(relays) > self.most:
            parts = [[]]
            for host in components(relays, same_host):
                if parts[-1] and total(parts[-1]) + total(host) > self.most:
                    parts.append([])
                parts[-1] += host
        groups = []
        for part in parts:
            gives = self.shared(list(map(self.need, part)), self.most)
            self.capped += [(relay["fingerprint"], self.need(relay), given)
                            for relay, given in zip(part, gives) if given != self.need(relay)]
            groups.append({"members": part, "gives": gives})
        return groups

    def shared(self, needs, most):
        if sum(needs) <= most:
            return needs
        return [need * most // sum(needs) for need in needs]

    def keeps(self, team, slot):
        row = max(4, len(self.teams))
        return slot < self.slots // row * row and slot % row == team

    def draw_places(self, group):
        need, places = sum(group["gives"]), []
        for team, left in enumerate(self.left):
            rooms = sorted((room, slot) for slot, room in enumerate(left) if room >= need)
            slot, counter = None, 0
            while slot is None and any(other not in places for _, other in rooms):
                coordinator = self.teams[team]["coordinator"]
                number = draw(self.seed, self.name(group), coordinator, counter, len(rooms))
                slot = rooms[number][1] if rooms[number][1] not in places else None
                counter += 1
            places.append(slot)
        self.enter(group, places, group)

    def units(self):
        """Groups that are placed by turns, each with what is measured with it."""
        heads = [group["beside"] for group in self.groups[self.drawn:] if group["beside"] == self.name(group)]
        return {head: [group for group in self.groups if group["beside"] == head] for head in heads}

    def members(self, unit):
        """Relays that have not gone before the unit's first slot, and what they get."""
        first = min((slot for slot in unit[0]["places"] if slot is not None), default=self.slots)
        return [(relay, given) for group in unit for relay, given in zip(group["members"], group["gives"])
                if group["gone"].get(relay["fingerprint"], self.slots + 1) > first]

    def take_back(self, from_slot):
        """Takes the places back of units that have begun nowhere; returns their heads."""
        heads = []
        for head, unit in self.units().items():
            places = [slot for group in unit for slot in group["places"] if slot is not None]
            if not self.members(unit) or any(slot < from_slot for slot in places):
                continue
            need = sum(given for _, given in self.members(unit))
            for team, slot in enumerate(unit[0]["places"]):
                if slot is not None:
                    self.left[team][slot] += need
            for group in unit:
                group["places"] = [None] * len(self.teams)
            heads.append(head)
        return heads

    def take_turns(self, heads, from_slot):
        """Places units fairly by networks, and in each of them by hosts."""
        units = self.units()
        number = {relay["fingerprint"]: place for place, relay in enumerate(self.everybody)}
        first = lambda head: min(number[relay["fingerprint"]] for relay, _ in self.members(units[head]))
        order = sorted(heads, key=first)
        for bits in (32, 64), (24, 48):
            served = {}

            def finish(unit):
                relays = [relay for relay, _ in self.members(unit)]
                need = sum(given for _, given in self.members(unit))
                before = max((served.get(part, 0) for part in parts(relays, *bits)), default=0)
                for part in parts(relays, *bits):
                    served[part] = served.get(part, 0) + need
                return before + need

            for head, unit in units.items():
                if head not in heads:
                    finish(unit)
            numbers = {head: finish(units[head]) for head in order}
            order.sort(key=lambda head: (numbers[head], first(head)))
        for head in order:
            self.first_places(units[head], from_slot)

    def first_places(self, unit, from_slot):
        need, places = sum(given for _, given in self.members(unit)), []
        for team, left in enumerate(self.left):
            places.append(next((slot for slot in range(from_slot, self.slots) if left[slot] >= need
                                and slot not in places and not self.keeps(team, slot)), None))
        for team, slot in enumerate(places):
            if slot is not None:
                self.left[team][slot] -= need
        for group in unit:
            group["places"] = list(places)

    def enter(self, group, places, beside):
        for team, slot in enumerate(places):
            if slot is not None:
                self.left[team][slot] -= sum(group["gives"])
        self.groups.append({**group, "places": places, "beside": self.name(beside), "gone": {}})

    def add(self, relays, from_slot):
        there = [(group, relay) for group in self.groups for relay in group["members"]
                 if relay["fingerprint"] not in group["gone"]]
        key = lambda relay: hashlib.sha256(self.seed + relay["fingerprint"]).digest()
        new = sorted(relays, key=key)
        self.everybody += new
        waiting = self.take_back(from_slot)
        everybody = [relay for _, relay in there] + new
        sets = [one for one in components(everybody, belong) if any(r in new for r in one)]
        for one in sorted(sets, key=lambda one: min(new.index(r) for r in one if r in new)):
            come = [relay for relay in new if relay in one]
            heads = {group["beside"] for group, relay in there if relay in one}
            if not heads:
                for group in self.divided(come):
                    self.enter(group, [None] * len(self.teams), group)
                    waiting.append(self.name(group))
            if len(heads) != 1:
                continue
            head = next(group for group in self.groups if self.name(group) in heads)
            for relay in come:
                if self.name(head) in waiting:
                    unit = self.units()[self.name(head)]
                    needed = self.need(relay) + sum(given for _, given in self.members(unit))
                    if needed <= self.most or self.need(relay) > self.most:
                        for group in self.divided([relay]):
                            self.enter(group, [None] * len(self.teams), head)
                    continue
                for group in self.divided([relay]):
                    places = []
                    for team, slot in enumerate(head["places"]):
                        fits = slot is not None and slot >= from_slot and not self.keeps(team, slot)
                        fits = fits and self.left[team][slot] >= sum(group["gives"])
                        places.append(slot if fits else None)
                    self.enter(group, places, head)
        self.take_turns(waiting, from_slot)

    def go(self, name, from_slot):
        for group in self.groups:
            for relay, given in zip(group["members"], group["gives"]):
                if relay["fingerprint"] == name:
                    group["gone"][name] = from_slot
                    for team, slot in enumerate(group["places"]):
                        if slot is not None and slot >= from_slot:
                            self.left[team][slot] += given
        for again in self.again:
            for task in [task for task in again["tasks"] if task[0] == name]:
                if again["slot"] >= from_slot:
                    again["tasks"].remove(task)
                    self.left[again["team"]][again["slot"]] += task[1]

    def measure_again(self, team, name, z, now):
        """One relay's z was not conclusive, or is None: it failed. Returns a slot, or None."""
        of_relay = next(group for group in self.groups
                        if any(r["fingerprint"] == name for r in group["members"]))
        near = [group for group in self.groups if group["beside"] == of_relay["beside"]]
        members = [(relay, given) for group in near if group["places"][team] is not None
                   for relay, given in zip(group["members"], group["gives"])]
        most = self.capacities[team]
        had_all = sum(given for _, given in members) + len(members) >= most
        last = rounded(most / F)
        relay = next(relay for relay, _ in members if relay["fingerprint"] == name)
        if z is not None and (had_all or z >= bound(most) or self.guess(relay) >= last):
            return None
        guesses = [min(max(z, 2 * self.guess(r)), last) if r is relay and z is not None
                   else self.guess(r) for r, _ in members]
        gives = self.shared(list(map(demand, guesses)), most)
        is_new = any(r["estimate"] is None for r in self.head(of_relay)["members"])
        taken = {slot for group in near for slot in group["places"]}
        row = max(4, len(self.teams))
        rooms = [slot for slot in range(now + 1, self.slots) if self.keeps(team, slot)
                 and slot not in taken and self.left[team][slot] >= sum(gives)
                 and not (is_new and slot // row % 2 == 0)]
        if not rooms:
            return None
        networks = parts([relay for relay, _ in members], 24, 48) if is_new else set()
        waiting = max((sum(given for again in self.again if again["team"] == team and again["slot"] > now
                           and network in again["networks"] for _, given in again["tasks"])
                       for network in networks), default=0)
        if 4 * waiting > sum(self.left[team][slot] for slot in rooms):
            return None
        coordinator = self.teams[team]["coordinator"]
        name = self.name(self.head(of_relay))
        slot = rooms[draw(self.seed, name, coordinator, 1 << 31, len(rooms))]
        self.left[team][slot] -= sum(gives)
        tasks = [(relay["fingerprint"], given) for (relay, _), given in zip(members, gives)]
        self.again.append({"team": team, "slot": slot, "tasks": tasks, "networks": networks})
        return slot

    def head(self, group):
        return next(head for head in self.groups if self.name(head) == group["beside"])

    def rows(self):
        """Who measures whom when, with what of each measurer."""
        rows = []
        for team, slot in ((t, s) for t in range(len(self.teams)) for s in range(self.slots)):
            tasks = [(relay["fingerprint"], given)
                     for group in self.groups if group["places"][team] == slot
                     for relay, given in zip(group["members"], group["gives"])
                     if group["gone"].get(relay["fingerprint"], self.slots) > slot]
            for again in self.again:
                tasks += again["tasks"] if (again["team"], again["slot"]) == (team, slot) else []
            left = list(self.teams[team]["measurers"])
            for name, need in tasks:
                shares = []
                while need:
                    number = max(range(len(left)), key=lambda n: (left[n], -n))
                    given = min(need, left[number])
                    left[number], need = left[number] - given, need - given
                    shares.append([number, given])
                rows.append([team, slot, name.hex(), shares])
        return rows


def hkdf(salt, secret, info):
    key = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def made_up(rng, count, hosts, new):
    """Relays, of which some share addresses, some families, and some have no estimate."""
    relays = []
    for _ in range(count):
        estimate = None if rng.random() < new else int(rng.paretovariate(1.1) * 10**6)
        addresses = [f"192.0.{rng.randrange(2, 6)}.{rng.randrange(64)}"]
        if rng.random() < 0.2:
            addresses.append(f"2001:db8:{rng.randrange(4)}:{rng.randrange(1 << 16):x}::1")
        relays.append({"fingerprint": rng.randbytes(20), "estimate": estimate,
                       "addresses": addresses if hosts else [],
                       "family": [], "family_ids": rng.sample(["ed25519:a", "ed25519:b"], 1)
                       if hosts and rng.random() < 0.1 else []})
    for one, other in [rng.sample(relays, 2) for _ in range(count // 10)] if hosts else []:
        one["family"].append(other["fingerprint"])
        if rng.random() < 0.5:
            other["family"].append(one["fingerprint"])
    return relays


def text(relay):
    return {**relay, "fingerprint": relay["fingerprint"].hex(),
            "family": [name.hex() for name in relay["family"]]}


def case(rng, relays, slots, teams, events):
    teams = [{"coordinator": rng.randbytes(32), "measurers": measurers} for measurers in teams]
    seed, new_guess = rng.randbytes(32), 6_375_000
    period = Period(relays, teams, slots, seed, new_guess)
    told = []
    for step in range(events):
        now = (step + 1) * slots // (events + 2)
        if step % 3 == 0:
            come = made_up(rng, 8, True, 0.9)
            come[0]["addresses"] = relays[step % len(relays)]["addresses"]
            period.add(come, now)
            told.append({"add": list(map(text, come)), "from_slot": now})
        elif step % 3 == 1:
            name = rng.choice(relays)["fingerprint"]
            period.go(name, now)
            told.append({"gone": name.hex(), "from_slot": now})
        gone = {name for group in period.groups for name in group["gone"]}
        for team in range(len(teams)):
            # Of those whose whole group is there, one that it has measured.
            done = [relay for group in period.groups for relay in group["members"]
                    if group["places"][team] is not None and group["places"][team] < now
                    and not any(r["fingerprint"] in gone for g in period.groups
                                if g["beside"] == group["beside"] for r in g["members"])
                    and not any(relay["fingerprint"].hex() == e.get("again") and e["team"] == team
                                for e in told)
                    and len([g for g in period.groups if g["beside"] == group["beside"]]) == 1
                    and len(group["members"]) < 4]
            if not done:
                continue
            relay = rng.choice(done)
            near = next(g for g in period.groups if relay in g["members"])
            if any(e.get("team") == team and e["again"] in [r["fingerprint"].hex() for r in near["members"]]
                   for e in told):
                continue
            times = rng.choice([None, 1.1, 1.5, 2.7])
            z = None if times is None else int(period.guess(relay) * times)
            slot = period.measure_again(team, relay["fingerprint"], z, now)
            told.append({"again": relay["fingerprint"].hex(), "team": team, "measured": z, "now": now,
                         "slot": slot})
    short = lambda rows: sorted([name.hex(), *rates] for name, *rates in rows)
    return {
        "seed": seed.hex(), "slots": slots, "new_guess": new_guess,
        "teams": [{**team, "coordinator": team["coordinator"].hex()} for team in teams],
        "relays": list(map(text, relays)), "events": told, "too_fast": short(period.too_fast),
        "capped": short(period.capped), "rows": period.rows(),
    }


def main():
    rng = random.Random(316)
    # A network that is much for its teams, with a host that is too much.
    crowded = made_up(rng, 60, True, 0.3)
    for relay in crowded[:8]:
        relay.update(estimate=rng.randrange(10**6, 9 * 10**6), addresses=["198.51.100.1"], family_ids=[])
    cases = [
        case(rng, made_up(rng, 5, False, 0.2), 4, [[10**8]], 0),
        case(rng, made_up(rng, 60, False, 0.2), 3, [[2 * 10**8], [10**8, 5 * 10**7]], 0),
        case(rng, made_up(rng, 120, True, 0.2), 30,
             [[125_000_000] * 3, [500_000_000], [200_000_000, 50_000_000]], 9),
        case(rng, crowded, 24, [[20 * 10**6, 15 * 10**6], [35 * 10**6]], 6),
        # New relays that wait for long, so that their slots move.
        case(rng, made_up(rng, 60, True, 0.9), 60, [[40 * 10**6], [50 * 10**6]], 12),
    ]
    shared_random, secret, period = rng.randbytes(32), b"a secret of the coordinators", 20_600
    seed = hkdf(shared_random, secret, b"flashflow-schedule-1" + period.to_bytes(8, "big"))
    print(json.dumps({
        "seed": {"shared_random": shared_random.hex(), "secret": secret.hex(), "period": period,
                 "seed": seed.hex()},
        "cases": cases,
    }, separators=(",", ":")).replace('{"seed":', '\n{"seed":').replace('{"fingerprint"', '\n{"fingerprint"'))


main()
