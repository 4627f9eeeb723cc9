// Package dashboard tests manifests/monitoring/dashboard.json by the schema of Grafana, which the Grafana Foundation
// SDK has as Go types. It is a module of its own, since the product needs none of it.
package dashboard
