#!/bin/busybox sh
# The first and only program of the emulated machine: ext4 over persistent memory, then the tests.
export PATH=/bin:/usr/bin:/usr/sbin:/sbin RUST_BACKTRACE=1
/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmp /dev/shm
mount -t tmpfs tmp /tmp
while read -r module; do
    insmod "$module"
done </modules/order
/usr/sbin/mke2fs -q -t ext4 -b 4096 /dev/pmem0
mount -t ext4 -o dax /dev/pmem0 /mnt
uname -sr
grep pmem0 /proc/mounts
code=0
for test in /tests/*; do
    DOVETAIL_DAX_DIR=/mnt "$test" media:: --nocapture --test-threads=1 || code=1
done
echo "machine: exit $code"
poweroff -f
