#!/bin/busybox sh
# The first and only program of the emulated machine: soft-RoCE on a dummy device, then the tests.
export PATH=/bin:/usr/bin:/usr/sbin:/sbin RUST_BACKTRACE=1
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
while read -r module; do
    insmod "$module"
done </modules/order
ip link set lo up
# Loading its module may have made one already.
ip link show dummy0 >/dev/null 2>&1 || ip link add dummy0 type dummy
ip address add 10.99.0.1/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
uname -sr
rdma link
code=0
for test in /tests/*; do
    DOVETAIL_RDMA_DEVICE=rxe0 "$test" --nocapture --test-threads=1 || code=1
done
echo "machine: exit $code"
poweroff -f
