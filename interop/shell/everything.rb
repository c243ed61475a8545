# Every command that changes or shows something on one server, and what it says when it is asked wrongly.
# everything.expected holds what a stock HBase 2.6.4 printed, through the filter described in ../README.md.
puts '== general'
whoami
status 'summary'
status 'nonsense'
puts '== create'
create 'cmd'
create
create 'cmd', {NAME => 'f', VERSIONS => 3, TTL => 86400, IN_MEMORY => true, BLOCKSIZE => 8192, KEEP_DELETED_CELLS => true, MIN_VERSIONS => 1, DATA_BLOCK_ENCODING => 'FAST_DIFF', CONFIGURATION => {'hbase.hstore.blockingStoreFiles' => '20'}, METADATA => {'owner' => 'me'}}, 'g', {MAX_FILESIZE => '1073741824', READONLY => false, DURABILITY => 'ASYNC_WAL', METADATA => {'team' => 'blue'}, CONFIGURATION => {'hbase.hregion.scan.loadColumnFamiliesOnDemand' => 'true'}}
describe 'cmd'
desc 'cmd'
create 'cmd_bad', {NAME => 'f', VERSIONS => 'many'}
create 'cmd_bad', {NAME => 'f', NONSENSE => 1}
create 'cmd_bad', {NAME => 'f', 'NONSENSE' => 1}
create 'cmd_bad', 7
create 'cmd bad', 'f'
create 'cmd_bad', 'f:g'
create 'cmd_no_ns:t', 'f'
create 'cmd_two', 'f', 'f'
create 'cmd_hex', 'f', {NUMREGIONS => 4, SPLITALGO => 'HexStringSplit'}
get_splits 'cmd_hex'
create 'cmd_dec', {NAME => 'f'}, {NUMREGIONS => 3, SPLITALGO => 'DecimalStringSplit'}
get_splits 'cmd_dec'
create 'cmd_uni', {NAME => 'f'}, {NUMREGIONS => 2, SPLITALGO => 'UniformSplit'}
get_splits 'cmd_uni'
create 'cmd_bad', 'f', {NUMREGIONS => 4}
create 'cmd_bad', 'f', {SPLITALGO => 'HexStringSplit'}
create 'cmd_bad', 'f', {NUMREGIONS => 1, SPLITALGO => 'HexStringSplit'}
create 'cmd_bin', 'f', SPLITS => ["a\x01", 'b\x02', 'c']
get_splits 'cmd_bin'
create 'cmd_bad', 'f', SPLITS_FILE => '/no/such/file'
exists 'cmd_bad'
list; nil
list 'no_such.*'
list 'cmd_.*'
puts '== alter'
alter 'cmd'
alter
alter 'cmd', 'h'
alter 'cmd', {NAME => 'f', VERSIONS => 5, METADATA => {'owner' => 'you'}, CONFIGURATION => {'hbase.hstore.blockingStoreFiles' => '30'}}
alter 'cmd', NAME => 'h', METHOD => 'delete'
alter 'cmd', 'delete' => 'g'
alter 'cmd', 'delete' => 'nonsense'
alter 'cmd', METHOD => 'table_att', MAX_FILESIZE => '268435456', MERGE_ENABLED => false
alter 'cmd', METHOD => 'table_att_unset', NAME => 'MAX_FILESIZE'
alter 'cmd', METHOD => 'table_att_unset', NAME => 'MAX_FILESIZE'
alter 'cmd', METHOD => 'table_conf_unset', NAME => 'hbase.hregion.scan.loadColumnFamiliesOnDemand'
alter 'cmd', METHOD => 'table_conf_unset', NAME => 'no.such'
alter 'cmd', METHOD => 'nonsense'
alter 'cmd', {NAME => 'f', NONSENSE => 1}
alter 'cmd', 'NONSENSE' => 1
alter 'cmd', 'coprocessor' => '|org.apache.hadoop.hbase.coprocessor.AggregateImplementation|1001|'
describe 'cmd'
alter 'cmd', METHOD => 'table_att_unset', NAME => 'coprocessor$1'
alter 'cmd', METHOD => 'delete'
alter 'cmd', 'delete' => 'f'
alter_async 'cmd', {NAME => 'f', VERSIONS => 4}
alter_status 'cmd'
alter_status 'no_such'
describe 'cmd'
describe 'no_such'
alter 'no_such', NAME => 'f', METHOD => 'delete'
puts '== put'
put 'cmd', 'r1', 'f:a', 'v', 1
put 'cmd', 'r1', 'f:a'
put 'cmd', 'r1', 'f', 'no qualifier', 1
put 'cmd', 'r1', 'f:', 'empty qualifier', 2
put 'cmd', 'r1', 'f:q:r', 'colon', 3
put 'cmd', 'r2', 'f:a', 5, 4
put 'cmd', 7, 'f:a', 'number row', 5
put 'cmd', 'r3', 'f:a', 'v', 6, {ATTRIBUTES => {'k' => 'v'}}
put 'cmd', 'r3', 'f:b', 'v', {TTL => 100000000}
put 'cmd', '', 'f:a', 'v'
put 'cmd', "\xff\x00bin", "f:\x01", "\x80\t\n\"", 7
put 'no_such', 'r', 'f:a', 'v'
put 'cmd', 'r', 'x:a', 'v'
put
puts '== get'
get 'cmd', 'r1'
get 'cmd', 'r1', 'f'
get 'cmd', 'r1', 'f:'
get 'cmd', 'r1', 'f:q:r'
get 'cmd', 7
get 'cmd', "\xff\x00bin"
get 'cmd', 'r1', 'f:a', 'f:b'
get 'cmd', 'r1', ['f:a', 'f:b']
get 'cmd', 'r1', {COLUMNS => ['f:a', 'f:b'], VERSIONS => 2}
get 'cmd', 'r1', {COLUMN => 7}
get 'cmd', 'r1', {TIMESTAMP => 1}
get 'cmd', 'r1', {TIMERANGE => [1, 3], VERSIONS => 4}
get 'cmd', 'r1', {MAXLENGTH => 12}
get 'cmd', 'r1', {COLUMN => 'f:a', MAXLENGTH => 30}
get 'cmd', 'r1', {NONSENSE => 1}
get 'cmd', 'r1', {'NONSENSE' => 1}
get 'cmd', 'r1', 7
get 'cmd', 'r1', {FILTER => "ColumnCountGetFilter(1)"}
get 'cmd', 'r1', {FILTER => "NoSuchFilter(1)"}
get 'cmd', 'r1', {FILTER => "ValueFilter(=, 'binary:v'"}
get 'cmd', 'r1', {CONSISTENCY => 'STRONG', COLUMN => 'f:a'}
get 'cmd', 'r1', {ATTRIBUTES => {'k' => 'v'}}
get 'cmd', 'r2', {COLUMN => 'f:a:toString'}
get 'cmd', 'r2', {COLUMN => ['f:a:c(org.apache.hadoop.hbase.util.Bytes).len']}
get 'cmd', 'r2', {COLUMN => 'f:a:toNothing'}
get 'cmd', 'r2', {COLUMN => 'f:a', FORMATTER => 'toHex'}
get 'cmd', 'r2', {COLUMN => 'f:a', FORMATTER => 'toLong'}
get 'cmd', ''
get 'cmd'
get 'no_such', 'r'
puts '== scan'
scan 'cmd', {COLUMNS => 'f:a'}
scan 'cmd', {COLUMNS => ['f:a', 'f:b:toInt'], LIMIT => 1}
scan 'cmd', {COLUMNS => 7}
scan 'cmd', {STARTROW => 'r1', STOPROW => 'r3', COLUMN => 'f:a'}
scan 'cmd', {STARTROW => 'r3', STOPROW => 'r1', REVERSED => true, COLUMN => 'f:a'}
scan 'cmd', {ROWPREFIXFILTER => 'r', COLUMN => 'f:a', CACHE => 2, BATCH => 1}
scan 'cmd', {MAXLENGTH => 6, COLUMN => 'f:a'}
scan 'cmd', {TIMESTAMP => 1}
scan 'cmd', {TIMERANGE => [2, 5]}
scan 'cmd', {COLUMN => 'f:a', CACHE_BLOCKS => false, ISOLATION_LEVEL => 'READ_UNCOMMITTED', READ_TYPE => 'PREAD'}
scan 'cmd', {COLUMN => 'f:a', ISOLATION_LEVEL => 'NONE'}
scan 'cmd', {COLUMN => 'f:a', ATTRIBUTES => {'k' => 'v'}}
scan 'cmd', {COLUMN => 'f:a', FORMATTER => 'toHex', LIMIT => 1}
scan 'cmd', {FILTER => "RowFilter(=, 'regexstring:^r[12]') AND ColumnPrefixFilter('a')"}
scan 'cmd', {FILTER => "FirstKeyOnlyFilter() AND KeyOnlyFilter()"}
scan 'cmd', {FILTER => "SKIP ValueFilter(!=, 'substring:colon') AND MultipleColumnPrefixFilter('a')"}
scan 'cmd', {FILTER => "WHILE QualifierFilter(<, 'binary:z')", LIMIT => 1}
scan 'cmd', {FILTER => "NoSuchFilter('a')"}
scan 'cmd', {FILTER => "PrefixFilter('a'"}
scan 'cmd', {FILTER => "PrefixFilter()"}
scan 'cmd', {FILTER => "ValueFilter(=, 'v')"}
scan 'cmd', {FILTER => org.apache.hadoop.hbase.filter.ColumnPaginationFilter.new(1, 0)}
scan 'cmd', {LIMIT => 0, COLUMN => 'f:a'}
scan 'cmd', {'LIMIT' => 1, 'COLUMN' => 'f:a'}
scan 'cmd', {NONSENSE => 1}
scan 'cmd', {COLUMN => 'f:a', REVERSED => false, VERSIONS => 2, RAW => false, LIMIT => 1}
scan 'no_such'
scan
scan 'hbase:meta', {COLUMNS => 'table:state', STARTROW => 'cmd_hex', LIMIT => 1}
puts '== count'
count 'cmd'
count 'cmd', 2
count 'cmd', INTERVAL => 2, CACHE => 1
count 'cmd', FILTER => "PrefixFilter('r')"
count 'cmd', STARTROW => 'r2', STOPROW => 'r3'
count 'cmd', COLUMNS => 'f:b'
count 'no_such'
puts '== incr, append, get_counter'
incr 'cmd', 'n', 'f:n'
incr 'cmd', 'n', 'f:n', 10
incr 'cmd', 'n', 'f:n', -4
incr 'cmd', 'n', 'f:n', 1, {ATTRIBUTES => {'k' => 'v'}}
incr 'cmd', 'n', 'f:n', {ATTRIBUTES => {'k' => 'v'}}
incr 'cmd', 'n', 'f'
get_counter 'cmd', 'n', 'f:n'
get_counter 'cmd', 'none', 'f:n'
get_counter 'cmd', 'r1', 'f:a'
get_counter 'cmd', 'n'
append 'cmd', 'n', 'f:s', 'one'
append 'cmd', 'n', 'f:s', ' two'
append 'cmd', 'n', 'f:s', 3, ATTRIBUTES => {'k' => 'v'}
append 'cmd', 'n', 'f', 'x'
append 'cmd', 'n', 'x:s', 'x'
append 'cmd', 'n', 'f:s'
# Increments and Appends within one millisecond get times of their own, which may lie ahead of a Delete's (as in HBase).
sleep 1
puts '== delete'
delete 'cmd', 'r1', 'f:a', 1
delete 'cmd', 'r1'
delete 'cmd', 'r1', 'f'
delete 'cmd', 'r1', 'x:a'
delete 'cmd', 'none', 'f:a'
deleteall 'cmd', 'r1', 'f:b', 5
deleteall 'cmd', 'r2', 'f:a'
deleteall 'cmd', 'n'
deleteall 'cmd', {ROWPREFIXFILTER => 'r', CACHE => 1}, 'f:a'
deleteall 'cmd'
deleteall 'no_such', 'r'
scan 'cmd', {RAW => true, VERSIONS => 10, ROWPREFIXFILTER => 'r1'}
scan 'cmd', {COLUMNS => ['f:a', 'f:q']}
puts '== references to tables'
t = get_table 'cmd'
t.put 'u', 'f:a', 'v', 1
t.get 'u'
t.scan COLUMNS => 'f:a', STARTROW => 'u'
t.count
t.incr 'u', 'f:n'
t.get_counter 'u', 'f:n'
t.append 'u', 'f:s', 'x'
t.delete 'u', 'f:a'
t.deleteall 'u'
t.describe
t.get_splits
t.flush
t.disable
t.enable
t.name
get_table 'no_such'
get_table
puts '== states of tables'
disable 'cmd'
disable 'cmd'
put 'cmd', 'r', 'f:a', 'v'
get 'cmd', 'r'
count 'cmd'
is_disabled 'cmd'
list_regions 'cmd'
flush 'cmd'
compact 'cmd'
enable 'cmd'
enable 'cmd'
enable 'no_such'
disable 'no_such'
drop 'no_such'
is_disabled 'no_such'
is_enabled
disable
exists
truncate 'no_such'
truncate_preserve 'cmd_hex'
get_splits 'cmd_hex'
disable 'cmd_dec'
truncate_preserve 'cmd_dec'
is_enabled 'cmd_dec'
truncate
clone_table_schema 'cmd_dec', 'cmd_clone'
get_splits 'cmd_clone'
clone_table_schema 'cmd_dec', 'cmd_clone'
clone_table_schema 'cmd_dec', 'cmd_clone_2', false
get_splits 'cmd_clone_2'
clone_table_schema 'no_such', 'cmd_clone_3'
show_filters
puts '== regions'
locate_region 'cmd_hex', '5'
locate_region 'no_such', '5'
locate_region 'cmd_hex'
list_regions 'cmd_hex', '', ['START_KEY', 'END_KEY']
list_regions 'cmd_hex', nil, ['NONSENSE']
list_regions 'cmd_hex', {LOCALITY_THRESHOLD => 2.0}
list_regions 'no_such'
get_splits 'no_such'
flush 'cmd_hex', 'f'
flush 'cmd_hex', 'x'
flush 'no_such'
flush
compaction_state 'cmd_hex'
compact 'cmd_hex', 'f'
compact 'no_such'
compact 'cmd_hex', 'f', 'NONSENSE'
major_compact 'cmd_hex', 'f'
major_compact 'no_such'
compaction_state 'no_such'
split 'no_such'
split 'cmd_hex', '00000000'
merge_region 'nonsense'
merge_region '0123456789abcdef0123456789abcdef', 'more'
move 'nonsense'
assign 'nonsense'
unassign 'nonsense'
close_region 'nonsense'
puts '== switches'
balancer 'force'
balancer 'nonsense'
balance_switch false
balancer_enabled
balance_switch true
balance_switch
normalizer_enabled
normalizer_switch false
normalizer_switch true
catalogjanitor_enabled
catalogjanitor_switch false
catalogjanitor_switch true
snapshot_cleanup_enabled
splitormerge_enabled 'SPLIT'
splitormerge_switch 'SPLIT', false
splitormerge_switch 'SPLIT', true
splitormerge_enabled 'MERGE'
splitormerge_switch 'NONSENSE', true
splitormerge_enabled 'NONSENSE'
clear_deadservers
is_in_maintenance_mode
list_deadservers
list_decommissioned_regionservers
compaction_switch true
clear_block_cache 'cmd_hex'
clear_block_cache 'no_such'
decommission_regionservers 'nonsense'
recommission_regionserver 'nonsense'
puts '== namespaces'
create_namespace 'cmd_ns'
create_namespace 'cmd_ns2', {'a' => 'b', 'c' => 'd'}
create_namespace
describe_namespace 'cmd_ns'
describe_namespace 'cmd_ns2'
alter_namespace 'cmd_ns2', {METHOD => 'unset', NAME => 'a'}
alter_namespace 'cmd_ns2', {METHOD => 'set', 'e' => 'f'}
alter_namespace 'cmd_ns2', {METHOD => 'nonsense'}
alter_namespace 'cmd_ns2', {'e' => 'f'}
alter_namespace 'cmd_ns2'
alter_namespace 'no_such', {METHOD => 'set', 'e' => 'f'}
describe_namespace 'cmd_ns2'
list_namespace
list_namespace 'cmd.*'
list_namespace_tables 'cmd_ns'
list_namespace_tables 'no_such'
list_namespace_tables 'hbase'
drop_namespace 'no_such'
drop_namespace 'cmd_ns'
drop_namespace 'cmd_ns2'
drop_namespace 'hbase'
puts '== snapshots'
snapshot 'cmd', 'cmd_s1'
snapshot 'cmd', 'cmd_s2', {SKIP_FLUSH => true}
snapshot 'cmd'
snapshot 'cmd', 7
snapshot 'cmd', 'bad name'
list_table_snapshots 'cmd', 'cmd_s1'
list_snapshots 'cmd_s1'
list_table_snapshots 'no_such'
clone_snapshot 'cmd_s1', 'cmd_from'
clone_snapshot 'no_such', 'cmd_from2'
clone_snapshot 'cmd_s1', 'cmd_no_ns:t'
clone_snapshot 'cmd_s1'
restore_snapshot 'no_such'
delete_snapshot 'no_such'
delete_snapshot
delete_all_snapshot 'no_such.*'
delete_table_snapshots 'no_such'
puts '== language'
nonsense
nonsense 'a'
NONSENSE
5.times { |i| print i, ' ' }
[1, 2].map { |x| x * 2 }
x = 3
x
'a' + 'b'
"a\tb"
:sym
nil
true
1.5
{'a' => 1, :b => [1, nil]}
1..3
(1..3).to_a
puts "#{x} and #{x + 1}"
p 'q'
printf("%05d|%-4s|\n", 42, 'ab')
for i in 1..2 do put 'cmd', "row#{i}", 'f:a', i.to_s, i end
scan 'cmd', {STARTROW => 'row', COLUMNS => ['f:a']}
[].first
begin; raise 'trouble'; rescue => e; puts e.message; end
puts [1, [2, 3]]
puts nil
x += 1
x == 4 ? 'yes' : 'no'
%w[a b]
list('cmd_h.*').size
puts '== slow log'
clear_slowlog_responses
get_slowlog_responses '*'
get_slowlog_responses '*', {'TABLE_NAME' => 'cmd', 'LIMIT' => 5, 'FILTER_BY_OP' => 'AND', 'USER' => 'nobody'}
get_largelog_responses '*', {'TABLE_NAME' => 'no_such'}
get_slowlog_responses '*', {'FILTER_BY_OP' => 'XOR'}
get_slowlog_responses 5
get_slowlog_responses '*', 5
clear_slowlog_responses 5
puts '== settings'
update_all_config
puts '== drop'
drop_all 'no_such.*'
list 'cmd.*'; nil
%w[cmd cmd_bad cmd_bin cmd_clone cmd_clone_2 cmd_dec cmd_from cmd_hex cmd_two cmd_uni].each { |name| disable name; drop name }; nil
disable 'cmd_hex'
drop 'cmd_hex'
list 'cmd.*'
delete_snapshot 'cmd_s1'
delete_snapshot 'cmd_s2'
