package worlds

// seeds are of worlds that pass, for "make test"; moreSeeds for "make test-all". See doc.go for what is missing.
var (
	seeds     = []uint64{6, 8, 9, 15, 61, 65, 66, 67, 74, 75, 6052, 30084, 41019, 41031, 70195}
	moreSeeds = []uint64{1, 3, 10, 11, 12, 13, 14, 16, 17, 18, 19, 62, 68, 69, 70, 71, 72, 77, 78, 3097, 6200, 30063, 41036, 70062, 70182, 80047}
)
