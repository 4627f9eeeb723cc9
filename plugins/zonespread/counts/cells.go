package counts

import (
	"cmp"
	"slices"
)

// cell is how many pods there are on one node.
type cell struct {
	slot int32
	pods int32
}

// cells are pods per node, in order of slot and without zeros. That takes 8 bytes for each node which
// has pods, and can be summed at the speed of memory.
type cells []cell

// add changes the number of pods on a node.
func (c *cells) add(slot, pods int32) {
	i, found := slices.BinarySearchFunc(*c, slot, func(e cell, slot int32) int { return cmp.Compare(e.slot, slot) })
	switch {
	case !found:
		*c = slices.Insert(*c, i, cell{slot: slot, pods: pods})
	case (*c)[i].pods+pods == 0:
		*c = slices.Delete(*c, i, i+1)
	default:
		(*c)[i].pods += pods
	}
}

// sumCells adds up several lists. scratch must hold a zero for every slot, and does so again afterwards.
func sumCells(lists []cells, scratch []int32) cells {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return slices.Clone(lists[0])
	}
	n := 0
	for _, list := range lists {
		for _, e := range list {
			if scratch[e.slot] == 0 {
				n++
			}
			scratch[e.slot] += e.pods
		}
	}
	sum := make(cells, 0, n)
	for slot, pods := range scratch {
		if pods != 0 {
			sum = append(sum, cell{slot: int32(slot), pods: pods}) //nolint:gosec // slots are int32
			scratch[slot] = 0
		}
	}
	return sum
}
