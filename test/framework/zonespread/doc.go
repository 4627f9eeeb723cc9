// Package zonespread runs kube-scheduler with the ZoneSpread plugin on an API server in memory, on a clock that the tests
// move, so that grace periods of minutes pass in no time. The tests here are about the promises to users, and compare outcomes
// with those of the in-tree plugin. The tests of what the plugin's parts promise to each other are beside these parts.
package zonespread
