package simulate

// keepsGroupPreemptionPolicy reports whether the API server gives a PodGroup the preemption policy of its
// PriorityClass. It does so wherever it serves PodGroups.
func keepsGroupPreemptionPolicy() bool { return true }
