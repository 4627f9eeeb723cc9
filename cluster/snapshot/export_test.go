package snapshot

// Known is how many parts there are to share.
func (s *Sharing) Known() int { return len(s.parts) }
