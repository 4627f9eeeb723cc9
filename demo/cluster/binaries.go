package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the executables.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kwok              = "kwok"
	Scheduler         = "zonewise-scheduler"
)

// AssetsVariable is the environment variable by which people who have
// envtest's own etcd and kube-apiserver say where they are.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Binaries maps the name of an executable to its path.
type Binaries map[string]string

// FindBinaries looks every executable up in binDir, and etcd and
// kube-apiserver in assets instead when that is not empty. The error lists all
// that are missing and says how to get them.
func FindBinaries(binDir, assets string) (Binaries, error) {
	found := Binaries{}
	var missing []string
	for _, name := range []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler} {
		dir := binDir
		if assets != "" && (name == Etcd || name == APIServer) {
			dir = assets
		}
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("resolve %s: %w", name, err)
		}
		if err := executable(path); err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", path, err))
			continue
		}
		found[name] = path
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("missing: %s; run \"make build controlplane\", or point --bin-dir at the binaries", strings.Join(missing, ", "))
	}
	return found, nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("not found")
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return errors.New("not an executable file")
	}
	return nil
}
