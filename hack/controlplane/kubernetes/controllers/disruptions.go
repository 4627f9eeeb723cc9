package main

import (
	"context"

	"k8s.io/kubernetes/pkg/controller/disruption"
)

// runDisruptions runs the controller of PodDisruptionBudgets.
func runDisruptions(ctx context.Context, c *disruption.DisruptionController) { c.Run(ctx, workers) }
