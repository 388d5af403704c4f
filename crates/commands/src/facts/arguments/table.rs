//! The arguments of each command, in the notation of the parent module, sorted by name.

pub(super) static TABLE: &[(&str, &str)] = &[
    ("acl|cat", "categoryname:s?"),
    ("acl|deluser", "username:s*"),
    ("acl|dryrun", "username:s command:s arg:s?*"),
    ("acl|genpass", "bits:i?"),
    ("acl|getuser", "username:s"),
    ("acl|log", "operation:o?(count:i reset:t=RESET)"),
    ("acl|setuser", "username:s rule:s?*"),
    ("append", "key:k#0 value:s"),
    ("auth", "username:s@6.0.0? password:s"),
    ("bgsave", "schedule:t=SCHEDULE@3.2.2?"),
    ("bitcount", "key:k#0 index:b?(start:i end:i index_unit:o@7.0.0?(byte:t=BYTE bit:t=BIT))"),
    (
        "bitfield",
        "key:k#0 operation:o?*(encoding_offset:b=GET(encoding:s offset:i) \
         write:b(wrap_sat_fail:o=OVERFLOW?(wrap:t=WRAP sat:t=SAT fail:t=FAIL) \
         write_operation:o(encoding_offset_value:b=SET(encoding:s offset:i value:i) \
         encoding_offset_increment:b=INCRBY(encoding:s offset:i increment:i))))",
    ),
    ("bitfield_ro", "key:k#0 encoding_offset:b=GET?*+(encoding:s offset:i)"),
    ("bitop", "operation:s destkey:k#0 key:k#1*"),
    (
        "bitpos",
        "key:k#0 bit:i index:b?(start:i end_index:b?(end:i index_unit:o@7.0.0?(byte:t=BYTE \
         bit:t=BIT)))",
    ),
    ("client|caching", "mode:o(yes:t=YES no:t=NO)"),
    (
        "client|kill",
        "filter:o(ip:port:s!2.8.12 new-format:o*(client-id:i=ID@2.8.12? \
         normal_master_slave_pubsub:o=TYPE@2.8.12?(normal:t=NORMAL master:t=MASTER@3.2.0 \
         slave:t=SLAVE replica:t=REPLICA@5.0.0 pubsub:t=PUBSUB) username:s=USER? \
         ip:port:s=ADDR? ip:port:s=LADDR@6.2.0? yes/no:s=SKIPME?))",
    ),
    (
        "client|list",
        "normal_master_replica_pubsub:o=TYPE@5.0.0?(normal:t=NORMAL master:t=MASTER \
         replica:t=REPLICA pubsub:t=PUBSUB) id:b=ID@6.2.0?(client-id:i*)",
    ),
    ("client|no-evict", "enabled:o(on:t=ON off:t=OFF)"),
    ("client|no-touch", "enabled:o(on:t=ON off:t=OFF)"),
    ("client|pause", "timeout:i mode:o@6.2.0?(write:t=WRITE all:t=ALL)"),
    ("client|reply", "on_off_skip:o(on:t=ON off:t=OFF skip:t=SKIP)"),
    ("client|setinfo", "attr:o(libname:s=LIB-NAME libver:s=LIB-VER)"),
    ("client|setname", "connection-name:s"),
    (
        "client|tracking",
        "status:o(on:t=ON off:t=OFF) client-id:i=REDIRECT? prefix:s=PREFIX?*+ bcast:t=BCAST? \
         optin:t=OPTIN? optout:t=OPTOUT? noloop:t=NOLOOP?",
    ),
    ("client|unblock", "client-id:i timeout_error:o?(timeout:t=TIMEOUT error:t=ERROR)"),
    ("cluster|addslots", "slot:i*"),
    ("cluster|addslotsrange", "start-slot_end-slot:b*(start-slot:i end-slot:i)"),
    ("cluster|count-failure-reports", "node-id:s"),
    ("cluster|countkeysinslot", "slot:i"),
    ("cluster|delslots", "slot:i*"),
    ("cluster|delslotsrange", "start-slot_end-slot:b*(start-slot:i end-slot:i)"),
    ("cluster|failover", "options:o?(force:t=FORCE takeover:t=TAKEOVER)"),
    ("cluster|forget", "node-id:s"),
    ("cluster|getkeysinslot", "slot:i count:i"),
    ("cluster|keyslot", "key:s"),
    ("cluster|meet", "ip:s port:i cluster_bus_port:i@4.0.0?"),
    ("cluster|replicas", "node-id:s"),
    ("cluster|replicate", "node-id:s"),
    ("cluster|reset", "hard_soft:o?(hard:t=HARD soft:t=SOFT)"),
    ("cluster|set-config-epoch", "config-epoch:i"),
    (
        "cluster|setslot",
        "slot:i subcommand:o(node-id:s=IMPORTING node-id:s=MIGRATING node-id:s=NODE \
         stable:t=STABLE)",
    ),
    ("cluster|slaves", "node-id:s"),
    ("command|docs", "command-name:s?*"),
    ("command|info", "command-name:s?*"),
    (
        "command|list",
        "filterby:o=FILTERBY?(module-name:s=MODULE category:s=ACLCAT pattern:p=PATTERN)",
    ),
    ("config|get", "parameter:b*(parameter:s)"),
    ("config|set", "parameter_value:b*(parameter:s value:s)"),
    ("copy", "source:k#0 destination:k#1 destination-db:i=DB? replace:t=REPLACE?"),
    ("decr", "key:k#0"),
    ("decrby", "key:k#0 decrement:i"),
    ("del", "key:k#0*"),
    (
        "delex",
        "key:k#0 condition:o?(ifeq-value:s=IFEQ ifne-value:s=IFNE ifdeq-digest:s=IFDEQ \
         ifdne-digest:s=IFDNE)",
    ),
    ("delifeq", "key:k#0 value:s"),
    ("digest", "key:k#0"),
    ("dump", "key:k#0"),
    ("echo", "message:s"),
    ("exists", "key:k#0*"),
    ("expire", "key:k#0 seconds:i condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)"),
    ("expireat", "key:k#0 unix-time-seconds:u condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)"),
    ("expiretime", "key:k#0"),
    (
        "failover",
        "target:b=TO?(host:s port:i force:t=FORCE?) abort:t=ABORT? milliseconds:i=TIMEOUT?",
    ),
    ("flushall", "async:o?(async:t=ASYNC@4.0.0 sync:t=SYNC@6.2.0)"),
    ("flushdb", "async:o?(async:t=ASYNC@4.0.0 sync:t=SYNC@6.2.0)"),
    ("get", "key:k#0"),
    ("getbit", "key:k#0 offset:i"),
    ("getdel", "key:k#0"),
    (
        "getex",
        "key:k#0 expiration:o?(seconds:i=EX milliseconds:i=PX unix-time-seconds:u=EXAT \
         unix-time-milliseconds:u=PXAT persist:t=PERSIST)",
    ),
    ("getrange", "key:k#0 start:i end:i"),
    ("getset", "key:k#0 value:s"),
    (
        "hello",
        "arguments:b?(protover:i username_password:b=AUTH?(username:s password:s) \
         clientname:s=SETNAME?)",
    ),
    ("hotkeys|list", "format:t=JSON"),
    (
        "hotkeys|start",
        "metrics:b=METRICS(count:i cpu:t=CPU? net:t=NET?) k:i=COUNT? seconds:i=DURATION? \
         ratio:i=SAMPLE? slots:b=SLOTS?(count:i slot:i*)",
    ),
    ("incr", "key:k#0"),
    ("incrby", "key:k#0 increment:i"),
    ("incrbyfloat", "key:k#0 increment:d"),
    ("info", "section:s?*"),
    ("keys", "pattern:p"),
    ("kv.range", "start:s end:s limit:i=LIMIT? rev:t=REV? keysonly:t=KEYSONLY?"),
    ("latency|graph", "event:s"),
    ("latency|histogram", "command:s?*"),
    ("latency|history", "event:s"),
    ("latency|reset", "event:s?*"),
    (
        "lcs",
        "key1:k#0 key2:k#0 len:t=LEN? idx:t=IDX? len:i=MINMATCHLEN? \
         withmatchlen:t=WITHMATCHLEN?",
    ),
    ("lolwut", "version:i=VERSION?"),
    ("memory|usage", "key:k#0 count:i=SAMPLES?"),
    ("mget", "key:k#0*"),
    (
        "migrate",
        "host:s port:i key_or_empty_string:o(key:k#0 empty_string:t=\"\") destination-db:i \
         timeout:i copy:t=COPY@3.0.0? replace:t=REPLACE@3.0.0? \
         authentication:o?(password:s=AUTH@4.0.7? username_password:b=AUTH2@6.0.0?(username:s \
         password:s)) key:k#1=KEYS@3.0.6?*",
    ),
    ("module|load", "path:s arg:s?*"),
    ("module|loadex", "path:s configs:b=CONFIG?*+(name:s value:s) args:b=ARGS?*(arg:s)"),
    ("module|unload", "name:s"),
    ("move", "key:k#0 db:i"),
    ("mset", "key_value:b*(key:k#0 value:s)"),
    (
        "msetex",
        "numkeys:i data:b*(key:k#0 value:s) condition:o?(nx:t=NX xx:t=XX) \
         expiration:o?(seconds:i=EX milliseconds:i=PX unix-time-seconds:u=EXAT \
         unix-time-milliseconds:u=PXAT keepttl:t=KEEPTTL)",
    ),
    ("msetnx", "key_value:b*(key:k#0 value:s)"),
    ("object|encoding", "key:k#0"),
    ("object|freq", "key:k#0"),
    ("object|idletime", "key:k#0"),
    ("object|refcount", "key:k#0"),
    ("persist", "key:k#0"),
    ("pexpire", "key:k#0 milliseconds:i condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)"),
    (
        "pexpireat",
        "key:k#0 unix-time-milliseconds:u condition:o@7.0.0?(nx:t=NX xx:t=XX gt:t=GT lt:t=LT)",
    ),
    ("pexpiretime", "key:k#0"),
    ("ping", "message:s?"),
    ("psetex", "key:k#0 milliseconds:i value:s"),
    ("psync", "replicationid:s offset:i"),
    ("pttl", "key:k#0"),
    ("rename", "key:k#0 newkey:k#1"),
    ("renamenx", "key:k#0 newkey:k#1"),
    ("replicaof", "args:o(host-port:b(host:s port:i) no-one:b(no:t=NO one:t=ONE))"),
    (
        "restore",
        "key:k#0 ttl:i serialized-value:s replace:t=REPLACE@3.0.0? absttl:t=ABSTTL@5.0.0? \
         seconds:i=IDLETIME@5.0.0? frequency:i=FREQ@5.0.0?",
    ),
    ("scan", "cursor:i pattern:p=MATCH? count:i=COUNT? type:s=TYPE@6.0.0?"),
    ("select", "index:i"),
    (
        "set",
        "key:k#0 value:s condition:o@2.6.12?(nx:t=NX xx:t=XX) get:t=GET@6.2.0? \
         expiration:o?(seconds:i=EX@2.6.12 milliseconds:i=PX@2.6.12 \
         unix-time-seconds:u=EXAT@6.2.0 unix-time-milliseconds:u=PXAT@6.2.0 \
         keepttl:t=KEEPTTL@6.0.0)",
    ),
    ("setbit", "key:k#0 offset:i value:i"),
    ("setex", "key:k#0 seconds:i value:s"),
    ("setnx", "key:k#0 value:s"),
    ("setrange", "key:k#0 offset:i value:s"),
    (
        "shutdown",
        "nosave_save:o?(nosave:t=NOSAVE save:t=SAVE) now:t=NOW@7.0.0? force:t=FORCE@7.0.0? \
         abort:t=ABORT@7.0.0?",
    ),
    ("slaveof", "args:o(host-port:b(host:s port:i) no-one:b(no:t=NO one:t=ONE))"),
    ("slowlog|get", "count:i?"),
    ("strlen", "key:k#0"),
    ("subscribe", "channel:s*"),
    ("substr", "key:k#0 start:i end:i"),
    ("swapdb", "index1:i index2:i"),
    ("touch", "key:k#0*"),
    ("ttl", "key:k#0"),
    ("type", "key:k#0"),
    ("unlink", "key:k#0*"),
    ("unsubscribe", "channel:s?*"),
    ("wait", "numreplicas:i timeout:i"),
    ("waitaof", "numlocal:i numreplicas:i timeout:i"),
    ("watch", "key:k#0*"),
];
