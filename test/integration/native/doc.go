// Package native runs gangs of Kubernetes' own API on a real control plane that has them, beside GangScheduling alone.
// It is a package of its own because the feature gate is that of the process.
package native
