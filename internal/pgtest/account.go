package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the system user that the server runs as. PostgreSQL refuses to run
// as root, so root's tests lend it another.
type account struct {
	other    bool // not ours
	uid, gid uint32
}

// serverUser is our own user, or for root the first one that suits.
func serverUser() (*account, error) {
	if os.Geteuid() != 0 {
		return &account{}, nil
	}
	var faults []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			faults = append(faults, err)
			continue
		}
		return &account{other: true, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no user but root to run it: %w", errors.Join(faults...))
}

// makeDir makes a temporary folder that belongs to the user and that the user
// can reach.
func (a *account) makeDir() (string, error) {
	parent := os.TempDir()
	if a.other && !reachable(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "moothall-pg-")
	if err != nil {
		return "", fmt.Errorf("make data folder: %w", err)
	}
	if !a.other {
		return dir, nil
	}
	if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
		return "", errors.Join(fmt.Errorf("give data folder away: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// writeFile makes a file that only the user can read.
func (a *account) writeFile(path, text string) error {
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	if !a.other {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// reachable tells whether everybody may enter path.
func reachable(path string) bool {
	path, err := filepath.Abs(path)
	for err == nil {
		info, statErr := os.Stat(path)
		if statErr != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
	return false
}

// apply makes cmd run as the user, in dir, with nothing of our environment that
// could change what PostgreSQL does, and away from the keyboard's interrupt.
func (a *account) apply(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}
