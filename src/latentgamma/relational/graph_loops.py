"""The compiled loops of `graphs`: walks in a knowledge graph, counts of rules, scores of candidates.

A step is a relation in one direction: relation r forwards is 2r, backwards 2r + 1. An edge is a triple
in one direction. The edges of an entity are sorted by step, and a group is its edges of one step. So
the group of entity d and step s ^ 1 lists the entities from which step s leads to d.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentgamma.program.compilation import Cells, compile_loop

#: Bins of a signature: the least hash of a rule's predictions in each.
BINS = 128
#: No prediction in this bin.
_EMPTY = np.uint32(0xFFFFFFFF)


class Links(NamedTuple):
    """The edges of a graph in both directions.

    Entity e has the groups `entity_ptr[e]` to `entity_ptr[e + 1]`, group g the step `group_step[g]` and
    the targets `targets[group_ptr[g]:group_ptr[g + 1]]`, rising. `reverse[i]` is the group of the
    reversed edge i. The last three are memory of the loops: two marks and a place for each entity, and a
    count for each group, which is 0 between calls.
    """

    steps: int
    entity_ptr: Any
    group_owner: Any
    group_step: Any
    group_ptr: Any
    targets: Any
    reverse: Any
    marks: Any
    found: Any
    counts: Any


@compile_loop
def mix(value: Any) -> Any:
    """Return 64 mixed bits of a number (splitmix64)."""
    bits = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compile_loop
def find(values: Cells, low: int, high: int, wanted: int) -> int:
    """Return where a number is among the rising values from `low` to `high`, or -1."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and values[low] == wanted else -1


@compile_loop
def find_group(links: Cells, entity: int, step: int) -> int:
    """Return the group of an entity and a step, or -1."""
    ptr = links.entity_ptr
    found: int = find(links.group_step, ptr[entity], ptr[entity + 1], step)
    return found


@compile_loop
def sign(values: Cells, signature: Cells) -> None:
    """Fill the signature of a set of numbers."""
    for value in values:
        bits = mix(value)
        bin_ = np.int64(bits % np.uint64(BINS))
        signature[bin_] = min(signature[bin_], np.uint32(bits >> np.uint64(32)))


@compile_loop
def reach(links: Cells, body: Cells, start: int, token: int, most: int) -> tuple[int, int]:
    """Fill `found` with the ends of the body's paths from an entity.

    The entities between both ends are distinct, and none of them is an end; both ends may be the
    same. `marks[0]` has the token of each entity that was found, `marks[1]` counts ways to the last
    entity but one. Returns the number found and the edges that were visited, which is more than
    `most` if the walk was cut short.
    """
    length = len(body)
    marks, found = links.marks, links.found
    nodes = np.empty(length + 1, np.int64)
    at = np.empty(length, np.int64)
    end = np.empty(length, np.int64)
    count = work = depth = 0
    nodes[0] = start
    group = find_group(links, start, body[0])
    if group < 0:
        return 0, 1
    at[0], end[0] = links.group_ptr[group], links.group_ptr[group + 1]
    while depth >= 0:
        if at[depth] == end[depth]:
            depth -= 1
            continue
        node = links.targets[at[depth]]
        at[depth] += 1
        work += 1
        if work > most:
            break
        last = depth == length - 1
        fresh = last or node != start
        for i in range(1, depth + 1):
            fresh = fresh and nodes[i] != node
        if not fresh:
            continue
        if last:
            if marks[0, node] != token:
                marks[0, node] = token
                found[count] = node
                count += 1
            continue
        if length == 3 and depth == 1:  # a third way to this entity leads to no new end
            if marks[1, node] == 2 * token + 1:
                continue
            marks[1, node] = max(marks[1, node] + 1, 2 * token)
        group = find_group(links, node, body[depth + 1])
        if group < 0:
            continue
        depth += 1
        nodes[depth] = node
        at[depth], end[depth] = links.group_ptr[group], links.group_ptr[group + 1]
    return count, work


@compile_loop
def count_path(
    links: Cells,
    body: Cells,
    sources: Cells,
    token: int,
    most: int,
    support: Cells,
    partial: Cells,
    signature: Cells,
) -> tuple[int, int, int, bool]:
    """Count the predictions of a body for every head relation.

    Returns the predicted pairs, the sources that were visited before `most` edges were, the edges, and
    whether a walk was cut short. `support` gets the pairs that are triples of each relation,
    `partial` the pairs whose first entity has the relation.
    """
    pairs = work = done = 0
    cut = False
    for source in sources:
        if work >= most:
            break
        count, edges = reach(links, body, source, token + done, most)
        work += edges
        cut = cut or edges > most
        pairs += count
        sign(source * len(links.found) + links.found[:count], signature)
        if count:
            for group in range(links.entity_ptr[source], links.entity_ptr[source + 1]):
                step = links.group_step[group]
                if step % 2:
                    continue
                partial[step // 2] += count
                work += links.group_ptr[group + 1] - links.group_ptr[group]
                for i in range(links.group_ptr[group], links.group_ptr[group + 1]):
                    support[step // 2] += links.marks[0, links.targets[i]] == token + done
        done += 1
    return pairs, done, work, cut


@compile_loop
def find_paths(
    links: Cells,
    length: int,
    heads: Cells,
    tails: Cells,
    seed: int,
    each: int,
    most: int,
    token: int,
    codes: Cells,
    owners: Cells,
) -> tuple[int, int, int, bool]:
    """List the bodies of `length` steps that lead from heads to tails, as numbers to the base `links.steps`.

    At most `each` edges are visited for one triple; the first `length - 3` steps are drawn at random.
    Returns the triples that were looked at, the rows that were filled, the edges visited, and whether
    everything was listed for these triples.
    """
    first = rows = work = 0
    whole = length <= 3
    nodes = np.empty(length + 1, np.int64)
    codes_so_far, low, count, at, offset = np.zeros((5, length), np.int64)
    while first < len(heads) and work < most and rows + each <= len(codes):
        y = tails[first]
        state = mix(seed + first)
        token += 1
        for i in range(
            links.group_ptr[links.entity_ptr[y]], links.group_ptr[links.entity_ptr[y + 1]]
        ):
            links.marks[0, links.targets[i]] = token
        spent = depth = 0
        emitted = rows
        nodes[0] = heads[first]
        first += 1
        fresh = True
        while depth >= 0:
            if fresh:  # the edges of the entity, or one of them
                start, end = links.entity_ptr[nodes[depth]], links.entity_ptr[nodes[depth] + 1]
                at[depth] = offset[depth] = 0
                if depth <= length - 3 or depth == 0:
                    state = mix(state)
                    group = start + np.int64(state % np.uint64(end - start))
                    offset[depth] = links.group_ptr[group] - links.group_ptr[start]
                low[depth] = links.group_ptr[start]
                count[depth] = links.group_ptr[end] - low[depth]
                if depth < length - 3:
                    state = mix(state)
                    size = links.group_ptr[group + 1] - links.group_ptr[group]
                    offset[depth] += np.int64(state % np.uint64(size))
            drawn = depth < length - 3 and at[depth] == 1
            if at[depth] == count[depth] or drawn:
                depth -= 1
                fresh = False
                continue
            if spent >= each or rows - emitted >= each:
                whole = False
                break
            edge = low[depth] + offset[depth] + at[depth]
            edge -= count[depth] if edge >= low[depth] + count[depth] else 0
            at[depth] += 1
            spent += 1
            node = links.targets[edge]
            fresh = node != y
            for i in range(depth + 1):
                fresh = fresh and nodes[i] != node
            if not fresh:
                continue
            code = codes_so_far[depth] * links.steps + (links.group_step[links.reverse[edge]] ^ 1)
            if depth == length - 2:
                fresh = False
                if links.marks[0, node] == token:
                    code *= links.steps
                    rows += list_ends(
                        links, node, y, code, codes, owners, rows, emitted + each, first
                    )
                continue
            depth += 1
            nodes[depth] = node
            codes_so_far[depth] = code
        whole = whole and rows < emitted + each
        work += spent
    return first, rows, work, whole


@compile_loop
def list_ends(
    links: Cells,
    node: int,
    y: int,
    code: int,
    codes: Cells,
    owners: Cells,
    row: int,
    end: int,
    owner: int,
) -> int:
    """Append a row for every step from a node to y; return how many there are."""
    count = 0
    for group in range(links.entity_ptr[node], links.entity_ptr[node + 1]):
        low, high = links.group_ptr[group], links.group_ptr[group + 1]
        if row + count < end and find(links.targets, low, high, y) >= 0:
            codes[row + count] = code + links.group_step[group]
            owners[row + count] = owner
            count += 1
    return count


@compile_loop
def find_ends(
    links: Cells, members: Cells, head: int, each: int, codes: Cells, owners: Cells
) -> tuple[int, int]:
    """List the bodies of two steps from entities of the group `head` to constants.

    A body is the number of its first step times the groups, plus the group of its constant and last step.
    At most `each` edges are visited for an entity. Returns the
    rows that were filled, and the edges visited.
    """
    groups = len(links.group_step)
    own_step, own = links.group_step[head] ^ 1, links.group_owner[head]
    rows = work = 0
    for place in range(len(members)):
        start = members[place]
        low, count = links.entity_ptr[start], links.entity_ptr[start + 1] - links.entity_ptr[start]
        offset = np.int64(mix(start) % np.uint64(count))
        spent = 0
        for k in range(count):
            one = low + (offset + k) % count
            step = np.int64(links.group_step[one])
            for i in range(links.group_ptr[one], links.group_ptr[one + 1]):
                middle = links.targets[i]
                if middle == start or (step == own_step and middle == own):
                    continue
                first = links.group_ptr[links.entity_ptr[middle]]
                last = links.group_ptr[links.entity_ptr[middle + 1]]
                for j in range(first, min(last, first + each - spent)):
                    if links.targets[j] not in (start, np.int64(middle)):
                        codes[rows] = step * groups + links.reverse[j]
                        owners[rows] = place
                        rows += 1
                spent += max(0, min(last - first, each - spent))
        work += spent
    return rows, work


@compile_loop
def gains(links: Cells, bodies: Cells, hits: Cells, scale: float, values: Cells) -> int:
    """Fill the gain of bodies of `find_ends`: hits times the logarithm of hits by paths to their constants.

    `scale` makes both shares: the number of entities by that of entities shown. Returns the edges visited.
    """
    groups = len(links.group_step)
    work = 0
    for place in range(len(bodies)):
        step, group = bodies[place] // groups, bodies[place] % groups
        paths = 0
        for i in range(links.group_ptr[group], links.group_ptr[group + 1]):
            other = find_group(links, links.targets[i], step ^ 1)
            work += 1
            if other >= 0:
                paths += links.group_ptr[other + 1] - links.group_ptr[other]
        values[place] = hits[place] * np.log(scale * hits[place] / (paths + 1))
    return work


@compile_loop
def gather(links: Cells, group: int, back: int, token: int) -> tuple[int, int, int]:
    """Fill `found` with the entities two steps away from an owner: an edge of its group, then `back`.

    Returns how many there are, how many entities are in between, and the edges visited.
    """
    owner = links.group_owner[group]
    count = between = work = 0
    for i in range(links.group_ptr[group], links.group_ptr[group + 1]):
        middle = links.targets[i]
        work += 1
        other = find_group(links, middle, back)
        if middle == owner or other < 0:
            continue
        first, last = links.group_ptr[other], links.group_ptr[other + 1]
        between += last - first > 1 or links.targets[first] != middle
        for j in range(first, last):
            node = links.targets[j]
            work += 1
            if node not in (np.int64(middle), owner) and links.marks[0, node] != token:
                links.marks[0, node] = token
                links.found[count] = node
                count += 1
    return count, between, work


@compile_loop
def list_heads(
    links: Cells,
    members: Cells,
    own_step: int,
    own_group: int,
    token: int,
    least: int,
    confident: float,
    shrink: float,
    general: Cells,
    first: bool,
    listed: Cells,
) -> tuple[int, int]:
    """List the heads with constants of a body whose support and confidence suffice.

    A head is the group of the reverse of an edge of the body's members. Edges of `own_step` and of
    `own_group` (or -1) are left out, and edges from an entity to itself. `general` has the confidences of a
    more general rule, which a rule has to exceed; they are filled in if this is the `first`, most general
    one. `listed` gets the head, the support, the instances, and those of them that have the head's
    relation. Returns how many heads are listed, and the edges visited.
    """
    having = np.zeros(links.steps, np.int64)  # the members that have each step
    counts = links.counts
    size = work = row = 0
    for entity in members:
        links.marks[0, entity] = token
        for group in range(links.entity_ptr[entity], links.entity_ptr[entity + 1]):
            step = links.group_step[group]
            having[step] += 1
            work += links.group_ptr[group + 1] - links.group_ptr[group]
            if step == own_step:
                continue
            for i in range(links.group_ptr[group], links.group_ptr[group + 1]):
                head = links.reverse[i]
                if head == own_group or links.targets[i] == entity:
                    continue
                if counts[head] == 0:
                    listed[0, size] = head
                    size += 1
                counts[head] += 1
    for i in range(size):
        head = listed[0, i]
        count = counts[head]
        counts[head] = 0
        # The constant of the head is not an instance.
        step = links.group_step[head] ^ 1
        own = links.marks[0, links.group_owner[head]] == token
        instances = len(members) - own
        value = count / (instances + shrink)
        better = first or value > general[head]
        if first:
            general[head] = value
        if count >= least and count >= confident * instances and better:
            listed[0, row] = head
            listed[1, row] = count
            listed[2, row] = instances
            found = find_group(links, links.group_owner[head], step)
            listed[3, row] = having[step] - (own and found >= 0)
            row += 1
    return row, work


@compile_loop
def overlaps(signatures: Cells, shared: Cells) -> None:
    """Fill the estimated Jaccard index of the predictions of each two rules."""
    for one in range(len(signatures)):
        for other in range(one):
            same = used = 0
            for i in range(BINS):
                a, b = signatures[one, i], signatures[other, i]
                used += a != _EMPTY or b != _EMPTY
                same += a == b and a != _EMPTY
            shared[one, other] = shared[other, one] = same / used if used else 0.0


@compile_loop
def walk_rules(
    links: Cells, bodies: Cells, lengths: Cells, start: int, token: int, each: int, pairs: Cells
) -> tuple[int, bool]:
    """List the pairs (rule, candidate) that path rules predict from an entity.

    Returns the number of pairs, and whether all were listed.
    """
    row = 0
    whole = True
    for rule in range(len(bodies)):
        body = bodies[rule, : lengths[rule]]
        count, work = reach(links, body, start, token + rule, each)
        whole = whole and work <= each
        if row + count > pairs.shape[1]:
            return row, False
        pairs[0, row : row + count] = rule
        pairs[1, row : row + count] = links.found[:count]
        row += count
    return row, whole


@compile_loop
def combine(
    order: Cells, ptr: Cells, candidates: Cells, labels: Cells, confidence: Cells, scores: Cells
) -> None:
    """Add log(1 - confidence) of the best rule of each cluster to the score of its candidates.

    `order` lists the rules cluster by cluster, the most confident first. Rule j predicts
    `candidates[ptr[j]:ptr[j + 1]]`.
    """
    marks = np.full(len(scores), -1)
    for rule in order:
        for i in range(ptr[rule], ptr[rule + 1]):
            candidate = candidates[i]
            if marks[candidate] != labels[rule]:
                marks[candidate] = labels[rule]
                scores[candidate] += np.log1p(-confidence[rule])
