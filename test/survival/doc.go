// Package survival runs the controller of ZoneSurvivals against a real API server, with the permissions that manifests give
// it and no others. Certificates are compared with real losses in test/sim.
package survival
