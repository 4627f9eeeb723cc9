// Package crdcache is the first edition of package crd; it goes with the last plugin that is moved.
package crdcache
