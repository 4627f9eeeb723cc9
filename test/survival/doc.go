// Package survival runs the controller of ZoneSurvivals against a real API server, with the permissions that the manifests give
// it and no others. Package test/sim compares certificates with real losses.
package survival
