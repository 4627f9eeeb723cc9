package skew

// GlobalMinimum is the number of matching pods that a domain is measured against: that of the domain
// with the fewest, or 0 while there are fewer eligible domains than minDomains asks for, so that pods
// wait for the missing domains (KEP-3022).
func GlobalMinimum(minimum, domains, minDomains int) int {
	if domains < minDomains {
		return 0
	}
	return minimum
}

// Fits tells whether one more pod may go to a domain that holds matching pods:
//
//	matching + self - minimum <= maxSkew
//
// where self tells whether the pod matches its own selector and will therefore count.
func Fits(matching int, self bool, minimum int, maxSkew int32) bool {
	if self {
		matching++
	}
	return matching-minimum <= int(maxSkew)
}
