package parts

import "zonewise.dev/cluster/snapshot"

// Unknown says in a line each what is not known of a cluster, so that a copy of it would be another one: kinds that
// cannot be read, and that it is too large to be copied. Kinds that the cluster does not have lack nothing.
func (s *Shared) Unknown(cluster *snapshot.Snapshot) (reasons []string) {
	for _, m := range cluster.Missing {
		switch m.Reason {
		case snapshot.NotInstalled:
		case snapshot.Forbidden:
			reasons = append(reasons, "the controller may not list "+m.Resource)
		default:
			reasons = append(reasons, m.Message())
		}
	}
	if reason := s.TooLarge(cluster); reason != "" {
		reasons = append(reasons, reason)
	}
	return reasons
}
