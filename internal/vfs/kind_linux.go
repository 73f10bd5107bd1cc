package vfs

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// kindName names a file system by the magic number of statfs(2); an unknown one is given back in hex.
func kindName(magic int64) string {
	switch uint32(magic) {
	case unix.EXT4_SUPER_MAGIC: // ext2 and ext3 have the same
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case zfsMagic:
		return "zfs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "tmpfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "smb"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.V9FS_MAGIC:
		return "9p"
	}
	return "0x" + strconv.FormatUint(uint64(uint32(magic)), 16)
}

const zfsMagic = 0x2fc12fc1 // not in x/sys: the module is not part of the kernel
