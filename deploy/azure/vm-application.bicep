// The bridge as a VM application of an Azure Compute Gallery: for VMs and scale sets that exist.
// Upload the package and the settings as blobs first; docs/rollout.md has the commands.
//
//   az deployment group create --resource-group seb --template-file vm-application.bicep \
//     --parameters galleryName=seb version=0.2.0 packageUrl='<blob URL with SAS>' settingsUrl='<blob URL with SAS>'
//
// The settings are a .tar with seb.env and, if the VMs take commands, trust.jwks. What differs between
// VMs is in /etc/seb/vm.env of each, which a script's protected settings write.

@description('Name of the gallery; it is made if it does not exist. Letters, digits, dots and underscores.')
param galleryName string

@description('Version of the package: three numbers.')
param version string

@description('What the VMs install: deb on Debian and Ubuntu, rpm on RHEL and Azure Linux.')
@allowed([
  'deb'
  'rpm'
])
param kind string = 'deb'

@description('Name of the application in the gallery: each kind of package needs one of its own.')
param applicationName string = 'scheduled-events-bridge'

@description('Address of the package in blob storage, with a SAS that can read.')
@secure()
param packageUrl string

@description('Address of settings.tar in blob storage, with a SAS that can read: the settings of all VMs.')
@secure()
param settingsUrl string

@description('Regions that get a copy. The VMs of other regions cannot install it.')
param regions array = [
  resourceGroup().location
]

param location string = resourceGroup().location

// apt and dnf wait for the lock that other programs hold at boot; dpkg and rpm do not.
var putDeb = 'DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=900 -o Dpkg::Options::=--force-confold -y --allow-downgrades install ./seb.deb'
var putRpm = 'if command -v dnf; then dnf -y --nogpgcheck install ./seb.rpm; else tdnf -y --nogpgcheck install ./seb.rpm; fi'
// Settings that are wrong never become seb.env: the installation fails and the service goes on with the old ones.
var settings = 'umask 077; mkdir -p settings; tar -xf settings.tar -C settings; cat settings/seb.env > /etc/seb/seb.env.new; if [ -s /etc/seb/vm.env ]; then cat /etc/seb/vm.env >> /etc/seb/seb.env.new; fi; if [ -f settings/trust.jwks ]; then install -m 0640 -g seb settings/trust.jwks /etc/seb/files/.trust.jwks.new; mv /etc/seb/files/.trust.jwks.new /etc/seb/files/trust.jwks; fi; systemd-run --quiet --pipe --wait --collect --property=EnvironmentFile=/etc/seb/seb.env.new --setenv=SEB_SECRETS_DIR=/etc/seb/credentials /usr/lib/scheduled-events-bridge/bin/seb check --offline; mv /etc/seb/seb.env.new /etc/seb/seb.env'
var start = 'systemctl enable seb; systemctl restart seb'
var install = 'set -e; ${kind == 'deb' ? putDeb : putRpm}; ${settings}; ${start}'
var remove = kind == 'deb' ? 'apt-get -o DPkg::Lock::Timeout=900 -y remove scheduled-events-bridge' : 'dnf -y remove scheduled-events-bridge || tdnf -y remove scheduled-events-bridge'

resource gallery 'Microsoft.Compute/galleries@2022-03-03' = {
  name: galleryName
  location: location
}

resource application 'Microsoft.Compute/galleries/applications@2022-03-03' = {
  parent: gallery
  name: applicationName
  location: location
  properties: {
    supportedOSType: 'Linux'
    description: 'Delivers Azure Scheduled Events from each VM.'
  }
}

resource applicationVersion 'Microsoft.Compute/galleries/applications/versions@2022-03-03' = {
  parent: application
  name: version
  location: location
  properties: {
    publishingProfile: {
      source: {
        mediaLink: packageUrl
        defaultConfigurationLink: settingsUrl
      }
      manageActions: {
        install: install
        remove: remove
        // The same as install: the package manager replaces the version and the service restarts with its backlog.
        update: install
      }
      settings: {
        packageFileName: 'seb.${kind}'
        configFileName: 'settings.tar'
      }
      targetRegions: [for region in regions: {
        name: region
        regionalReplicaCount: 1
        storageAccountType: 'Standard_LRS'
      }]
    }
  }
}

output applicationVersionId string = applicationVersion.id
