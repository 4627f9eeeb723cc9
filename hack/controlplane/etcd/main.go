// Command etcd is the etcd server of the version pinned in this module's go.mod.
//
// The upstream main package lives in etcd's root module, whose go.mod replaces
// its siblings by local directories and therefore cannot be built from the
// module cache. The server module exports the same entry point, etcdmain.Main.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
