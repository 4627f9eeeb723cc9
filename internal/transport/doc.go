// Package transport changes how the requests of a scheduler reach the API server, where they leave: behind all clients,
// limits and queues, upstream's and ours.
package transport
