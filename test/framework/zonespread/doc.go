// Package zonespread runs kube-scheduler with the ZoneSpread plugin on an API server in memory, on a clock that the tests
// move, so that grace periods of minutes pass in no time. What the plugin's parts promise to each other is tested beside
// them; here are the promises to users, and the outcomes beside those of the in-tree plugin.
package zonespread
