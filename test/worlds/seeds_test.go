package worlds

// seeds are of worlds that pass, for "make test"; moreSeeds for "make test-all". See doc.go for what is missing.
var (
	seeds     = []uint64{5, 6, 8, 10, 11, 12, 13, 17, 18, 19, 20, 23, 24, 28, 29, 31}
	moreSeeds = []uint64{1, 2, 3, 4, 7, 9, 14, 15, 16, 21, 25, 26, 27, 30, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47}
)
