-- SPEAD in Wireshark: packets of digitisers and F-engines, with any number of items and pointers of
-- any width. docs/wireshark.md tells how to use it.
--
-- The rules are those of Karoo's own parser (crates/spead), and so are the names of what is wrong
-- (spead.verdict); crates/spead/tests/wireshark.rs holds both against each other.

local spead = Proto("spead", "SPEAD, the Streaming Protocol for Exchanging Astronomical Data")

-- Bytes of the fixed header, of an item pointer, and of the largest packet that Karoo takes.
local HEADER, POINTER, LARGEST = 8, 8, 9200
local STOP = 2

local f = {
  magic = ProtoField.uint8("spead.magic", "Magic", base.HEX),
  version = ProtoField.uint8("spead.version", "Version"),
  item_width = ProtoField.uint8("spead.item_width", "Bytes of an item identifier"),
  address_width = ProtoField.uint8("spead.address_width", "Bytes of a heap address"),
  reserved = ProtoField.uint16("spead.reserved", "Reserved", base.HEX),
  items = ProtoField.uint16("spead.items", "Item pointers"),
  flavour = ProtoField.string("spead.flavour", "Flavour"),
  verdict = ProtoField.string("spead.verdict", "Verdict"),
  item_immediate = ProtoField.bool("spead.item.immediate", "Immediate"),
  item_id = ProtoField.uint64("spead.item.id", "Identifier", base.HEX_DEC),
  item_name = ProtoField.string("spead.item.name", "Name"),
  item_value = ProtoField.uint64("spead.item.value", "Value or offset", base.DEC_HEX),
  item_length = ProtoField.uint32("spead.item.length", "Bytes in this packet"),
  item_bytes = ProtoField.bytes("spead.item.bytes", "Content in this packet"),
  payload = ProtoField.bytes("spead.payload", "Payload"),
  trailer = ProtoField.bytes("spead.trailer", "Bytes after the payload"),
  pol = ProtoField.uint8("spead.pol", "Polarisation"),
  saturated = ProtoField.uint16("spead.saturated", "Saturated samples"),
  saturation_flag = ProtoField.bool("spead.saturation_flag", "Saturation flag"),
  descriptor = ProtoField.string("spead.descriptor", "Descriptor"),
  d_verdict = ProtoField.string("spead.descriptor.verdict", "Verdict"),
  d_id = ProtoField.uint64("spead.descriptor.id", "Describes item", base.HEX_DEC),
  d_name = ProtoField.string("spead.descriptor.name", "Name"),
  d_description = ProtoField.string("spead.descriptor.description", "Description"),
  d_shape = ProtoField.string("spead.descriptor.shape", "Shape"),
  d_format = ProtoField.string("spead.descriptor.format", "Format"),
  d_dtype = ProtoField.string("spead.descriptor.dtype", "numpy header"),
}

-- Immediate items with a field of their own: identifier, name of the field, title.
local IMMEDIATE = {
  [0x0001] = { "heap_count", "Heap count" },
  [0x0002] = { "heap_length", "Heap length" },
  [0x0003] = { "payload_offset", "Payload offset" },
  [0x0004] = { "payload_length", "Payload length" },
  [0x0006] = { "stream_control", "Stream control" },
  [0x1600] = { "timestamp", "Timestamp (ADC samples)" },
  [0x3101] = { "digitiser_id", "Digitiser number" },
  [0x3102] = { "digitiser_status", "Digitiser status" },
  [0x4101] = { "feng_id", "F-engine number" },
  [0x4103] = { "frequency", "First channel" },
}
-- Names of items, for those that are not above.
local NAMES = {
  [0x0000] = "null",
  [0x0005] = "descriptor",
  [0x0010] = "descriptor name",
  [0x0011] = "descriptor description",
  [0x0012] = "descriptor shape",
  [0x0013] = "descriptor format",
  [0x0014] = "descriptor identifier",
  [0x0015] = "descriptor dtype",
  [0x3300] = "adc_samples",
  [0x4300] = "feng_raw",
}
for id, item in pairs(IMMEDIATE) do
  NAMES[id] = item[1]
  local base_of = item[1] == "digitiser_status" and base.HEX or base.DEC
  f["of_" .. id] = ProtoField.uint64("spead." .. item[1], item[2], base_of)
end
spead.fields = f

-- What is wrong, by the names that Karoo counts it under.
local WRONG = {
  ["packet-too-short"] = "shorter than the 8-byte header",
  ["packet-too-long"] = "longer than " .. LARGEST .. " bytes, which Karoo does not take",
  ["bad-magic"] = "the first byte is not 0x53",
  ["bad-version"] = "the version is not 4",
  ["bad-widths"] = "the widths must be positive and add up to 8",
  ["items-past-end"] = "the item pointers do not fit in the packet",
  ["no-heap-count"] = "no immediate item 0x0001, the heap count",
  ["no-payload-offset"] = "no immediate item 0x0003, the payload offset",
  ["no-payload-length"] = "no immediate item 0x0004, the payload length",
  ["payload-past-end"] = "the payload runs past the end of the packet",
  ["payload-past-heap"] = "the payload runs past the end of its heap",
  ["no-heap-length"] = "no immediate item 0x0002, the heap length, which must be known here",
  ["heap-spans-packets"] = "a part of a heap, where the whole heap must be in one packet",
  ["descriptor-incomplete"] = "a descriptor lacks its identifier, name, shape or type",
  ["descriptor-not-text"] = "text of a descriptor is not UTF-8",
  ["descriptor-ragged"] = "shape or format is not a whole number of entries",
  ["descriptor-bad-dtype"] = "the type is not a numpy header of a plain array",
  ["cut"] = "the capture has not all of this packet",
}
local experts = {}
for cause, text in pairs(WRONG) do
  local severity = cause == "cut" and expert.severity.NOTE or expert.severity.ERROR
  local group = cause == "cut" and expert.group.UNDECODED or expert.group.MALFORMED
  experts[cause] = ProtoExpert.new("spead.wrong." .. cause:gsub("-", "_"), cause .. ": " .. text, group, severity)
end
local digitiser_rule = ProtoExpert.new("spead.digitiser_spans_packets",
  "samples of a digitiser whose heap is not all in this packet: Karoo drops it", expert.group.PROTOCOL, expert.severity.WARN)
local trailing = ProtoExpert.new("spead.trailing", "bytes after the payload, which receivers ignore",
  expert.group.PROTOCOL, expert.severity.NOTE)
local stream_stop = ProtoExpert.new("spead.stop", "ends the stream", expert.group.SEQUENCE, expert.severity.NOTE)
spead.experts = {}
for _, it in pairs(experts) do table.insert(spead.experts, it) end
for _, it in ipairs({ digitiser_rule, trailing, stream_stop }) do table.insert(spead.experts, it) end

spead.prefs.ports = Pref.range("UDP ports", "7148",
  "Datagrams to these ports are read as SPEAD whatever they begin with; others if they begin as SPEAD does", 65535)

-- A number below 2^53 as one of Lua's, which have no more bits; nil for larger ones.
local function small(number)
  if number < UInt64(0, 0x00200000) then return number:tonumber() end
  return nil
end

-- Reads header and pointers. The result has `cause` if Karoo would refuse the packet, and what was
-- read until then.
local function read(tvb, reported)
  local packet = { pointers = {}, last = {}, reported = reported }
  local function refuse(cause)
    packet.cause = cause
    return packet
  end
  if reported < HEADER then return refuse("packet-too-short") end
  if tvb:len() < HEADER then return refuse("cut") end
  packet.has_header = true
  if reported > LARGEST then return refuse("packet-too-long") end
  if tvb(0, 1):uint() ~= 0x53 then return refuse("bad-magic") end
  if tvb(1, 1):uint() ~= 4 then return refuse("bad-version") end
  local item, address = tvb(2, 1):uint(), tvb(3, 1):uint()
  if item == 0 or address == 0 or item + address ~= 8 then return refuse("bad-widths") end
  packet.bits = 8 * address
  local count = tvb(6, 2):uint()
  if HEADER + POINTER * count > reported then return refuse("items-past-end") end
  if HEADER + POINTER * count > tvb:len() then return refuse("cut") end
  packet.begin = HEADER + POINTER * count
  for n = 1, count do
    local at = HEADER + POINTER * (n - 1)
    local word = tvb(at, POINTER):uint64()
    local pointer = {
      at = at,
      place = n,
      immediate = tvb(at, 1):uint() >= 0x80,
      id = word:lshift(1):rshift(1):rshift(packet.bits),
      value = word:lshift(64 - packet.bits):rshift(64 - packet.bits),
    }
    pointer.known = small(pointer.id)
    table.insert(packet.pointers, pointer)
    -- Of a repeated item the last one counts.
    if pointer.immediate and pointer.known then packet.last[pointer.known] = pointer.value end
  end
  local last = packet.last
  if not last[1] then return refuse("no-heap-count") end
  if not last[3] then return refuse("no-payload-offset") end
  if not last[4] then return refuse("no-payload-length") end
  local room = UInt64(reported - packet.begin)
  if last[4] > room then return refuse("payload-past-end") end
  packet.length = last[4]:tonumber()
  packet.offset = last[3]
  if last[2] and packet.offset + last[4] > last[2] then return refuse("payload-past-heap") end
  return packet
end

-- Why a packet has not its whole heap; nil if it has.
local function not_whole(packet)
  local last = packet.last
  if not last[2] then return "no-heap-length" end
  if last[3] ~= UInt64(0) or last[4] ~= last[2] then return "heap-spans-packets" end
  return nil
end

-- Gives each addressed pointer `from` and `to`, its bytes in the packet's payload: up to the next one
-- by offset, or the payload's end.
local function address(packet)
  local order = {}
  for _, it in ipairs(packet.pointers) do
    if not it.immediate then table.insert(order, it) end
  end
  table.sort(order, function(a, b)
    if a.value ~= b.value then return a.value < b.value end
    return a.place < b.place
  end)
  local base_at, stop = packet.offset, packet.offset + UInt64(packet.length)
  local function within(value)
    if value < base_at then return 0 end
    local at = value - base_at
    if at > UInt64(packet.length) then return packet.length end
    return at:tonumber()
  end
  for n, it in ipairs(order) do
    it.from = within(it.value)
    local next_one = order[n + 1]
    it.to = math.max(it.from, within(next_one and next_one.value or stop))
  end
end

-- Whether bytes are UTF-8, as the standard has it: no surrogates, nothing longer than it need be.
local function is_text(bytes)
  local n, length = 1, #bytes
  while n <= length do
    local first = bytes:byte(n)
    local more, low, high = 0, 0x80, 0xbf
    if first < 0x80 then more = 0
    elseif first >= 0xc2 and first <= 0xdf then more = 1
    elseif first >= 0xe0 and first <= 0xef then
      more = 2
      if first == 0xe0 then low = 0xa0 elseif first == 0xed then high = 0x9f end
    elseif first >= 0xf0 and first <= 0xf4 then
      more = 3
      if first == 0xf0 then low = 0x90 elseif first == 0xf4 then high = 0x8f end
    else return false end
    for k = 1, more do
      local byte = bytes:byte(n + k)
      if not byte or byte < low or byte > high then return false end
      low, high = 0x80, 0xbf
    end
    n = n + more + 1
  end
  return true
end

-- Entries of one byte and a number of `width` bytes, as text; nil if they are not whole.
local function entries(bytes, width, show)
  if #bytes % (1 + width) ~= 0 then return nil end
  local list = {}
  for n = 1, #bytes, 1 + width do
    local number = UInt64(0)
    for k = n + 1, n + width do number = number:lshift(8) + UInt64(bytes:byte(k)) end
    table.insert(list, show(bytes:byte(n), number))
  end
  return list
end

local function trim_start(text) return (text:gsub("^%s+", "")) end

-- Whether text is the dictionary of a numpy header, such as {'descr': '<i2', 'fortran_order': False,
-- 'shape': (4, 2)}; then its axes, as text.
local function numpy_axes(header)
  local function after(key)
    local _, stop = header:find("'" .. key .. "'", 1, true)
    if not stop then return nil end
    local rest = trim_start(header:sub(stop + 1))
    if rest:sub(1, 1) ~= ":" then return nil end
    return trim_start(rest:sub(2))
  end
  local descr, order, shape = after("descr"), after("fortran_order"), after("shape")
  if not (descr and order and shape) then return nil end
  if not descr:match("^'[^']*'") then return nil end
  if order:sub(1, 4) ~= "True" and order:sub(1, 5) ~= "False" then return nil end
  local dims = shape:match("^%(([^)]*)%)")
  if not dims then return nil end
  local axes = {}
  for dim in (dims .. ","):gmatch("([^,]*),") do
    dim = dim:match("^%s*(.-)%s*$")
    if dim ~= "" then
      if not dim:match("^%+?%d+$") then return nil end
      local digits = dim:gsub("^%+", ""):gsub("^0+(%d)", "%1")
      if #digits > 20 or (#digits == 20 and digits > "18446744073709551615") then return nil end
      table.insert(axes, digits)
    end
  end
  return axes
end

-- Reads a descriptor: a packet in the payload of a heap. Returns its cause of refusal or nil, and
-- what was read.
local function read_descriptor(tvb)
  local found = {}
  local packet = read(tvb, tvb:len())
  local cause = packet.cause or not_whole(packet)
  if cause then return cause, found end
  found.id = packet.last[0x14]
  if not found.id then return "descriptor-incomplete", found end
  address(packet)
  local shape, format, axes
  for _, it in ipairs(packet.pointers) do
    if not it.immediate and it.known then
      local range = it.to > it.from and tvb(packet.begin + it.from, it.to - it.from)
      local bytes = range and range:bytes():raw() or ""
      if it.known == 0x10 or it.known == 0x11 or it.known == 0x15 then
        if not is_text(bytes) then return "descriptor-not-text", found end
      end
      if it.known == 0x10 then found.name, found.name_range = bytes, range or nil
      elseif it.known == 0x11 then found.description = bytes
      elseif it.known == 0x12 then
        shape = entries(bytes, packet.bits / 8, function(flag, length)
          return flag % 2 == 0 and tostring(length) or "?"
        end)
        if not shape then return "descriptor-ragged", found end
      elseif it.known == 0x13 then
        format = entries(bytes, 8 - packet.bits / 8, function(kind, bits)
          return (kind >= 0x20 and kind < 0x7f and string.char(kind) or string.format("\\x%02x", kind)) .. tostring(bits)
        end)
        if not format then return "descriptor-ragged", found end
      elseif it.known == 0x15 then
        axes = numpy_axes(bytes)
        if not axes then return "descriptor-bad-dtype", found end
        found.dtype = bytes
      end
    end
  end
  if axes then
    shape = axes
  else
    if not shape or not format or #format == 0 then return "descriptor-incomplete", found end
    found.format = table.concat(format, ",")
  end
  found.shape = "(" .. table.concat(shape, ", ") .. ")"
  if not found.name then return "descriptor-incomplete", found end
  return nil, found
end

local function show_descriptor(tree, range)
  local cause, found = read_descriptor(range:tvb())
  local node = tree:add(f.descriptor, range, found.name or "")
  if found.id then node:add(f.d_id, range, found.id) end
  if found.name then node:add(f.d_name, found.name_range or range, found.name) end
  if found.description then node:add(f.d_description, range, found.description) end
  if found.shape then node:add(f.d_shape, range, found.shape) end
  if found.format then node:add(f.d_format, range, found.format) end
  if found.dtype then node:add(f.d_dtype, range, found.dtype) end
  node:add(f.d_verdict, range, cause or "ok"):set_generated()
  if cause then node:add_proto_expert_info(experts[cause]) end
  return found.name
end

local function show_item(tree, tvb, packet, it)
  local range = tvb(it.at, POINTER)
  local name = it.known and NAMES[it.known]
  local kind = it.immediate and "immediate" or "addressed"
  local node = tree:add(range, string.format("Item 0x%s, %s: %s %s", it.id:tohex():gsub("^0+(%x%x%x%x)", "%1"),
    name or "unknown", kind, tostring(it.value)))
  node:add(f.item_immediate, tvb(it.at, 1), it.immediate)
  node:add(f.item_id, range, it.id)
  node:add(f.item_name, range, name or "unknown"):set_generated()
  node:add(f.item_value, range, it.value)
  if it.immediate then
    if it.known and IMMEDIATE[it.known] then
      node:add(f["of_" .. it.known], range, it.value)
    end
    if it.known == 0x3101 then
      node:add(f.pol, range, it.value:band(1):tonumber()):set_generated()
    elseif it.known == 0x3102 then
      node:add(f.saturated, range, it.value:rshift(32):band(0xffff):tonumber()):set_generated()
      node:add(f.saturation_flag, range, it.value:band(2) ~= UInt64(0)):set_generated()
    elseif it.known == 6 and it.value == UInt64(STOP) then
      node:add_proto_expert_info(stream_stop)
    end
  elseif it.from then
    node:add(f.item_length, range, it.to - it.from):set_generated()
    local from, to = packet.begin + it.from, math.min(packet.begin + it.to, tvb:len())
    if from < to then
      local content = tvb(from, to - from)
      node:add(f.item_bytes, content)
      if it.known == 5 and packet.begin + it.to <= tvb:len() then show_descriptor(node, content) end
    elseif it.known == 5 then
      node:add(f.d_verdict, range, "packet-too-short"):set_generated()
      node:add_proto_expert_info(experts["packet-too-short"])
    end
  end
end

-- What a packet is, in a few words.
local function summary(packet)
  local last, addressed, descriptors = packet.last, {}, 0
  for _, it in ipairs(packet.pointers) do
    if not it.immediate and it.known then addressed[it.known] = true end
    if not it.immediate and it.known == 5 then descriptors = descriptors + 1 end
  end
  local function value(id) return tostring(last[id] or "?") end
  if last[6] == UInt64(STOP) then return "stop, heap " .. value(1) end
  if descriptors > 0 then return string.format("descriptors (%d), heap %s", descriptors, value(1)) end
  local part = string.format("heap %s, %d bytes at %s", value(1), packet.length, value(3))
  if addressed[0x3300] then
    local pol = last[0x3101] and last[0x3101]:band(1):tonumber() or "?"
    return string.format("digitiser, pol %s, timestamp %s, %s", tostring(pol), value(0x1600), part)
  end
  if addressed[0x4300] then
    return string.format("F-engine %s, from channel %s, timestamp %s, %s", value(0x4101), value(0x4103), value(0x1600), part)
  end
  return part
end

function spead.dissector(tvb, pinfo, tree)
  local packet = read(tvb, tvb:reported_len())
  pinfo.cols.protocol = "SPEAD"
  local root = tree:add(spead, tvb())
  if packet.has_header then
    root:add(f.magic, tvb(0, 1))
    root:add(f.version, tvb(1, 1))
    root:add(f.item_width, tvb(2, 1))
    root:add(f.address_width, tvb(3, 1))
    root:add(f.reserved, tvb(4, 2))
    root:add(f.items, tvb(6, 2))
  end
  if packet.bits then
    root:add(f.flavour, tvb(2, 2), "SPEAD-64-" .. packet.bits):set_generated()
  end
  if not packet.cause then address(packet) end
  for _, it in ipairs(packet.pointers) do show_item(root, tvb, packet, it) end
  root:add(f.verdict, tvb(), packet.cause or "ok"):set_generated()
  if packet.cause then
    root:add_proto_expert_info(experts[packet.cause])
    pinfo.cols.info = packet.cause .. ": " .. WRONG[packet.cause]
    return tvb:len()
  end
  local stop = packet.begin + packet.length
  if math.min(stop, tvb:len()) > packet.begin then
    root:add(f.payload, tvb(packet.begin, math.min(stop, tvb:len()) - packet.begin))
  end
  if tvb:len() < packet.reported then root:add_proto_expert_info(experts["cut"]) end
  if stop < tvb:len() then
    root:add(f.trailer, tvb(stop, tvb:len() - stop)):add_proto_expert_info(trailing)
  end
  for _, it in ipairs(packet.pointers) do
    if not it.immediate and it.known == 0x3300 and not_whole(packet) then
      root:add_proto_expert_info(digitiser_rule)
      break
    end
  end
  pinfo.cols.info = summary(packet)
  return tvb:len()
end

-- Datagrams to other ports: those that begin as SPEAD of any flavour does.
spead:register_heuristic("udp", function(tvb, pinfo, tree)
  if tvb:len() < HEADER or tvb(0, 2):uint() ~= 0x5304 then return false end
  if tvb(2, 1):uint() + tvb(3, 1):uint() ~= 8 then return false end
  spead.dissector(tvb, pinfo, tree)
  return true
end)

local ports
local function take_ports()
  local udp = DissectorTable.get("udp.port")
  if ports then udp:remove(ports, spead) end
  ports = spead.prefs.ports
  udp:add(ports, spead)
end
spead.prefs_changed = take_ports
take_ports()
