package worlds

// seeds are of worlds that pass, for "make test"; moreSeeds for "make test-all". See doc.go for what is missing.
var (
	seeds     = []uint64{1}
	moreSeeds = []uint64{2}
)
