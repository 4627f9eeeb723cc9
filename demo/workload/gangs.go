package workload

// Gang is a PodGroup and the StatefulSet whose pods are its members. The
// traces have no gangs; these are made up.
type Gang struct {
	Name string
	// Members is the number of pods and the group's minMember.
	Members int
	// Each is what one member requests.
	Each Resources
	// Fits is true when the nodes were chosen so that the whole gang fits beside everything else. The demo has one gang that
	// can never fit: it must wait and hold nothing.
	Fits bool
}

// gangsFor returns the gangs for a cluster with the given nodes. The one that does not fit asks for whole eight-device nodes
// (or the largest there are): one more of them than exist, so that in an empty cluster all but one of its
// members would find room. A scheduler that looks at pods one at a time would bind those.
func gangsFor(nodes []Node) []Gang {
	gangs := fittingGangs()
	var most int64
	for _, n := range nodes {
		most = max(most, n.Capacity.GPU)
	}
	each := Resources{MilliCPU: 1000, MemoryMiB: 4 * 1024, GPU: most}
	slots := 0
	for _, n := range nodes {
		if n.Capacity.holds(each) {
			slots++
		}
	}
	return append(gangs, Gang{Name: "train-too-large", Members: slots + 1, Each: each})
}

// fittingGangs returns the gangs that count when the nodes are chosen.
func fittingGangs() []Gang {
	const gib = 1024
	return []Gang{
		{Name: "train-ranker", Fits: true, Members: 12, Each: Resources{MilliCPU: 4000, MemoryMiB: 24 * gib, GPU: 1}},
		{Name: "train-embeddings", Fits: true, Members: 16, Each: Resources{MilliCPU: 14_000, MemoryMiB: 56 * gib}},
		{Name: "finetune", Fits: true, Members: 6, Each: Resources{MilliCPU: 16_000, MemoryMiB: 96 * gib, GPU: 2}},
		{Name: "evaluate", Fits: true, Members: 9, Each: Resources{MilliCPU: 28_000, MemoryMiB: 112 * gib}},
	}
}
