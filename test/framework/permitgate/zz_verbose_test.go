package permitgate

import (
	"flag"
	"os"

	"k8s.io/klog/v2"
)

func init() {
	if v := os.Getenv("KV"); v != "" {
		fs := flag.NewFlagSet("klog", flag.PanicOnError)
		klog.InitFlags(fs)
		fs.Set("v", v)
	}
}
